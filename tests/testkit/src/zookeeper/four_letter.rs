//! ZooKeeper's four-letter words, which ask a server about itself.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result};

/// Sends a word and reads the answer to its end. `timeout` applies to each step.
pub(super) fn ask(addr: SocketAddr, word: &str, timeout: Duration) -> Result<String> {
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&addr, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        stream.write_all(word.as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    exchange().with_context(|| format!("ZooKeeper at {addr} did not answer `{word}`"))
}

/// The figure `name` in an answer to `mntr`.
pub(super) fn metric(reply: &str, name: &str) -> Result<u64> {
    let value = reply.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    let value =
        value.with_context(|| format!("`mntr` does not report {name}; its answer:\n{reply}"))?;
    value
        .parse()
        .with_context(|| format!("`mntr` reports {name} {value}, which is not a whole number"))
}

/// The mode of the server in an answer to `srvr`: `standalone`, `leader` or `follower`. `None`
/// while it serves no client.
pub(super) fn mode(reply: &str) -> Option<&str> {
    reply.lines().find_map(|line| line.strip_prefix("Mode: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let reply =
            "zk_version\t3.8.0\nzk_watch_count_total\t7\nzk_watch_count\t2\nzk_avg_latency\t0.5\n";
        assert_eq!(metric(reply, "zk_watch_count").unwrap(), 2);
        assert!(metric(reply, "zk_avg_latency").unwrap_err().to_string().contains("0.5"));
        let error =
            metric("This ZooKeeper instance is not currently serving requests", "zk_watch_count");
        assert!(error.unwrap_err().to_string().contains("not currently serving"));
    }

    #[test]
    fn only_a_serving_server_reports_its_mode() {
        assert_eq!(mode("Zxid: 0x0\nMode: standalone\nNode count: 5\n"), Some("standalone"));
        assert_eq!(mode("This ZooKeeper instance is not currently serving requests\n"), None);
    }
}
