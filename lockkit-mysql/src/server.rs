//! Identifies the server that a connection leads to.

/// How far apart the computed starts of one server may be. The server reports its uptime in whole
/// seconds, and at most half a second after its time.
const SAME_START_US: u64 = 2_000_000;

/// The server of a connection: which one it is, when it started, and its number for the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    host: String,
    port: String,
    started_us: u64,
    /// The server's number of the connection, for `KILL`. A restarted server begins these numbers
    /// anew.
    pub(crate) thread: u64,
    /// No proxy has another number for the connection.
    pub(crate) is_direct: bool,
}

impl Server {
    pub(crate) fn new(
        host: String,
        port: String,
        started_us: u64,
        thread: u64,
        is_direct: bool,
    ) -> Self {
        Self { host, port, started_us, thread, is_direct }
    }

    /// Whether both are the same process of the same server. Then a connection number means the
    /// same.
    pub(crate) fn is_same_run(&self, other: &Self) -> bool {
        self.host == other.host
            && self.port == other.port
            && self.started_us.abs_diff(other.started_us) < SAME_START_US
    }

    /// Whether this is a later run of the same server. All requests to an earlier run have ended
    /// with it.
    pub(crate) fn is_later_run(&self, other: &Self) -> bool {
        let is_later = self.started_us > other.started_us;
        self.host == other.host && self.port == other.port && is_later && !self.is_same_run(other)
    }

    /// As [`is_same_run`](Self::is_same_run), for a value of [`run`](Self::run).
    pub(crate) fn is_run(&self, (place, started_us): &(String, u64)) -> bool {
        self.run().0 == *place && self.started_us.abs_diff(*started_us) < SAME_START_US
    }

    /// Host and port, and the time of the start in µs, for comparison by other processes.
    pub(crate) fn run(&self) -> (String, u64) {
        (format!("{}:{}", self.host, self.port), self.started_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restarted_server_is_another_run() {
        let server = |started_us| Server {
            host: "a".into(),
            port: "1".into(),
            started_us,
            thread: 1,
            is_direct: true,
        };
        assert!(server(10_000_000).is_same_run(&server(11_500_000)));
        assert!(!server(10_000_000).is_same_run(&server(12_500_000)));
        assert!(server(12_500_000).is_later_run(&server(10_000_000)));
        assert!(!server(11_500_000).is_later_run(&server(10_000_000)), "the same");
        // An old connection to the earlier run says nothing about the present run.
        assert!(!server(10_000_000).is_later_run(&server(12_500_000)));
    }
}
