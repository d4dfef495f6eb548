//! A store to measure: the facts of its URL, and the connections to it.

use std::{
    error::Error as StdError,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lockkit::{Locker, url::StoreUrl};
use tokio::time::timeout;

use crate::{
    address,
    error::{Error, Result},
    floor::{self, Rival},
    peer::Peer,
    report::Store,
    server::{self, Server},
};

/// A store to measure: its URL and its name.
#[derive(Clone)]
pub struct Address {
    /// The URL, as [`lockkit::connect`] takes it.
    pub url: String,
    /// The name in the report; `None` for a name that follows from the server and the URL.
    pub label: Option<String>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({:?}, {})", self.label, address::shown(&self.url))
    }
}

/// The time for a server to report its count, which is a few bytes.
const TO_REPORT: Duration = Duration::from_secs(2);
/// The number of late reports after which the benchmark no longer asks the server.
const MOST_SILENCES: u32 = 3;

/// A store that is connected.
pub(crate) struct Target {
    /// The URL, with the password.
    pub(crate) url: String,
    pub(crate) store: Store,
    pub(crate) locker: Locker,
    server: Arc<dyn Server>,
    /// The number of times when the server did not report its count within [`TO_REPORT`].
    silences: AtomicU32,
    /// All rivals of lockkit on this store.
    pub(crate) rivals: Vec<Rival>,
}

impl Target {
    /// Connects, and reads the facts about the server. `taken` are the names of the other stores.
    pub(crate) async fn connect(
        address: &Address,
        taken: &[String],
        peer: Option<Peer>,
    ) -> Result<Self> {
        let shown = address::shown(&address.url);
        let of = |error: Box<dyn StdError + Send + Sync>| {
            Error::of(format!("cannot measure {shown}"), error)
        };
        let locker = lockkit::connect(&address.url).await.map_err(|error| of(error.into()))?;
        let server = server::open(&address.url).await.map_err(|error| of(error.into()))?;
        let facts = server.facts().await.map_err(|error| of(error.into()))?.of(&locker).await;
        let rivals = floor::rivals(&address.url, peer).await.map_err(|error| of(error.into()))?;
        let capabilities = locker.capabilities();
        let id = match &address.label {
            Some(label) => label.clone(),
            None => address::id(&facts.product, &address.url),
        };
        let store = Store {
            id: unique(id, taken),
            url: shown,
            product: facts.product,
            version: facts.version,
            settings: facts.settings,
            guarantee: facts.guarantee,
            is_fair: capabilities.fair,
            is_pushed: capabilities.push,
        };
        let url = address.url.clone();
        let silences = AtomicU32::new(0);
        Ok(Self { url, store, locker, server, silences, rivals })
    }

    /// The server's requests so far. `None` if the server does not report them, for any reason. The
    /// benchmark can measure locks without this count.
    pub(crate) async fn requests(&self) -> Option<u64> {
        told(&*self.server, &self.silences, TO_REPORT).await
    }

    /// The server's processor time so far. `None` if the server does not report it, for any reason.
    pub(crate) async fn server_cpu_time(&self) -> Option<Duration> {
        timeout(TO_REPORT, self.server.cpu_time()).await.ok()?.ok()?
    }

    /// The same store without the process gate: each task waits in the store.
    pub(crate) fn ungated(&self) -> Locker {
        self.locker.clone().with_process_gate(false)
    }

    /// Whether another process that connects to the URL gets a separate store.
    pub(crate) fn is_within_process(&self) -> bool {
        self.locker.descriptor().name == "memory"
    }

    /// The URL for a holder whose death other clients must notice after this time, if more than the
    /// lease decides this.
    pub(crate) fn url_with_session(&self, timeout: Duration) -> Result<String> {
        let url = StoreUrl::parse(&self.url)
            .map_err(|error| Error::of("could not parse a URL", error))?;
        let mut params = url.params.clone();
        let is_set = params
            .text("session_timeout")
            .map_err(|error| Error::of("could not parse a URL", error))?
            .is_some();
        if !matches!(url.scheme(), "zk" | "zks") || is_set {
            return Ok(self.url.clone());
        }
        let mark = if self.url.contains('?') { '&' } else { '?' };
        Ok(format!("{}{mark}session_timeout={}ms", self.url, timeout.as_millis()))
    }

    /// Releases and removes everything that this program has in the store.
    pub(crate) async fn close(&self) -> Result<()> {
        // Two rivals may share a table, and a client of either may still use it.
        for rival in &self.rivals {
            rival.drop_clients().await;
        }
        let mut closed = Ok(());
        for rival in &self.rivals {
            closed = closed.and(rival.close().await);
        }
        let shut_down = self.locker.shutdown().await;
        shut_down
            .map_err(|error| Error::of(format!("could not clean up {}", self.store.url), error))
            .and(closed)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}, {})", self.store.id, self.store.url)
    }
}

async fn told(server: &dyn Server, silences: &AtomicU32, within: Duration) -> Option<u64> {
    if silences.load(Ordering::Relaxed) >= MOST_SILENCES {
        return None;
    }
    let Ok(counted) = timeout(within, server.requests()).await else {
        silences.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    counted.ok().flatten()
}

fn unique(id: String, taken: &[String]) -> String {
    let mut candidates =
        std::iter::once(id.clone()).chain((2..).map(|number: u32| format!("{id}-{number}")));
    candidates.find(|candidate| !taken.contains(candidate)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::server::Facts;

    #[derive(Debug)]
    enum Counter {
        Tells(u64),
        Fails,
        Hangs(AtomicU32),
    }

    #[async_trait]
    impl Server for Counter {
        async fn facts(&self) -> Result<Facts> {
            Err(Error::new("not asked"))
        }

        async fn requests(&self) -> Result<Option<u64>> {
            match self {
                Self::Tells(count) => Ok(Some(*count)),
                Self::Fails => Err(Error::new("connection reset")),
                Self::Hangs(asked) => {
                    asked.fetch_add(1, Ordering::Relaxed);
                    std::future::pending().await
                }
            }
        }
    }

    /// Catches a target that returns the count's error: a case with working locks would fail.
    #[tokio::test]
    async fn a_counter_that_fails_or_hangs_gives_no_count() {
        let silences = AtomicU32::new(0);
        let within = Duration::from_millis(10);
        assert_eq!(told(&Counter::Tells(7), &silences, within).await, Some(7));
        assert_eq!(told(&Counter::Fails, &silences, within).await, None);
        let hangs = Counter::Hangs(AtomicU32::new(0));
        for _ in 0..5 {
            assert_eq!(told(&hangs, &silences, within).await, None);
        }
        assert!(
            matches!(hangs, Counter::Hangs(asked) if asked.load(Ordering::Relaxed) == MOST_SILENCES)
        );
    }

    #[test]
    fn a_second_store_of_a_name_gets_a_number() {
        let taken = ["redis".to_owned(), "redis-2".to_owned()];
        assert_eq!(unique("redis".to_owned(), &taken), "redis-3");
        assert_eq!(unique("zookeeper".to_owned(), &taken), "zookeeper");
    }

    #[test]
    fn an_address_shows_no_password() {
        let address = Address { url: "redis://me:s3cret@h/".to_owned(), label: None };
        assert_eq!(format!("{address:?}"), "Address(None, redis://me:***@h/)");
    }
}
