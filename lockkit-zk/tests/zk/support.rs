//! Servers, backends on them, and a second client that reads the tree directly.

use std::{
    collections::HashSet,
    fmt::Debug,
    net::SocketAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, Instant},
};

use lockkit_conformance::proxy::Proxy;
use lockkit_core::{
    Error, Kind, LockName, LockOptions, Locker, Result,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Grant, Mode, Wait},
    url::StoreUrl,
};
pub(crate) use lockkit_fixture::claims::{
    WakeSignal, busy, granted, mutex, persistently, texts, until,
};
use lockkit_fixture::{ZooKeeperOptions, ZooKeeperServer, claims};
use lockkit_zk::{
    Config, ZooKeeper,
    zookeeper_client::{self, Client, Stat},
};
use tokio::time::{sleep, timeout};

/// No session timeout of the tests is longer.
pub(crate) const TTL: Duration = Duration::from_secs(600);
/// A server may stall for two seconds, and is busy after that.
pub(crate) const OP_TIMEOUT: Duration = Duration::from_secs(30);
/// Required events happen within this time, or a test fails. No test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(60);
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The default session of a test. No test outlasts it, and its heartbeats after the first find no
/// change within a test. Its connection survives a stalled server.
const LASTING: &str = "session_timeout=10m&connect_timeout=60s";

/// A session that ends within a test, or whose heartbeats find a change within a test. It lasts
/// longer than a stall of the server. Its connection does, too, if the session has at least 20 s.
pub(crate) fn session(seconds: u64) -> String {
    let longest_connect_ms = seconds * 1_000 * 2 / 9;
    format!("session_timeout={seconds}s&connect_timeout={longest_connect_ms}ms")
}

/// A server, and a prefix on it that no other test has.
#[derive(Clone)]
pub(crate) struct Bed {
    pub(crate) server: Arc<ZooKeeperServer>,
    pub(crate) prefix: String,
}

/// Ticks of 200 ms, for short sessions, and long sessions as well.
pub(crate) fn options() -> ZooKeeperOptions {
    // The server must not delete folders of idle names while a test counts requests.
    ZooKeeperOptions::default()
        .with_config("maxSessionTimeout=600000")
        .with_java("-Dznode.container.checkIntervalMs=86400000")
}

/// For a server that deletes the folder of an idle name at once.
fn eager() -> ZooKeeperOptions {
    let reaper = ["checkIntervalMs=100", "maxPerMinute=100000"];
    reaper.into_iter().fold(options(), |o, line| o.with_java(format!("-Dznode.container.{line}")))
}

impl Bed {
    /// On the server that the tests share, for as long as any of them runs.
    pub(crate) fn shared() -> Self {
        static SERVER: Shared = Mutex::new(Weak::new());
        Self::on(shared(&SERVER, options))
    }

    /// On a shared server that deletes the folder of an idle name at once.
    pub(crate) fn eager() -> Self {
        static SERVER: Shared = Mutex::new(Weak::new());
        Self::on(shared(&SERVER, eager))
    }

    /// On a server for one test, which the test may pause.
    pub(crate) fn own() -> Self {
        Self::on(Arc::new(ZooKeeperServer::start_with(options()).unwrap()))
    }

    /// On a server for one test, which never stalls.
    pub(crate) fn steady() -> Self {
        let mut server = ZooKeeperServer::start_with(options()).unwrap();
        server.never_stall();
        Self::on(Arc::new(server))
    }

    fn on(server: Arc<ZooKeeperServer>) -> Self {
        Self { server, prefix: format!("t{:016x}", rand::random::<u64>()) }
    }

    pub(crate) fn url(&self, query: &str) -> String {
        self.url_at(self.server.addr(), query)
    }

    pub(crate) fn url_at(&self, addr: SocketAddr, query: &str) -> String {
        let session = if query.contains("session_timeout=") { "" } else { LASTING };
        format!("zk://{addr}/?prefix={}&{session}&{query}", self.prefix)
            .trim_end_matches('&')
            .replace("&&", "&")
    }

    pub(crate) async fn connect(&self, query: &str) -> ZooKeeper {
        connect_in_the_end(&self.url(query)).await
    }

    pub(crate) async fn locker(&self, query: &str) -> Locker {
        locker(self.connect(query).await)
    }

    /// A backend behind a proxy that can disturb its connection to the server.
    pub(crate) async fn behind_proxy(&self, query: &str) -> (ZooKeeper, Proxy) {
        let proxy = Proxy::start(self.server.addr()).await.unwrap();
        (connect_in_the_end(&self.url_at(proxy.addr(), query)).await, proxy)
    }

    pub(crate) fn folder(&self, kind: Kind, name: &str) -> String {
        format!("/{}/{kind}/{name}", self.prefix)
    }

    /// The ephemeral nodes and watches that this prefix still has on the server. Nodes that
    /// heartbeats write to do not count, because they live as long as their sessions.
    fn left(&self) -> Vec<String> {
        let path = format!("/{}/", self.prefix);
        let mut left = Vec::new();
        for word in ["dump", "wchp"] {
            let answer = self.server.four_letter(word).unwrap();
            left.extend(
                answer
                    .lines()
                    .filter(|l| l.contains(&path) && !l.contains("/session/"))
                    .map(|l| format!("{word}: {}", l.trim())),
            );
        }
        left
    }

    /// Fails unless the prefix is clean soon.
    pub(crate) async fn assert_clean(&self) {
        let clean = timeout(SOON, async {
            while !self.left().is_empty() {
                sleep(LOOK_AGAIN).await
            }
        });
        assert!(clean.await.is_ok(), "{:#?}", self.left());
    }

    /// The server's statistics for the connection of each session of this prefix. Each session has
    /// a node for its heartbeats.
    fn statistics(&self) -> Vec<String> {
        let path = format!("/{}/", self.prefix);
        let dump = self.server.four_letter("dump").unwrap();
        let mut sessions = HashSet::new();
        let mut last = "";
        // The paths of a session's nodes follow its line.
        for line in dump.lines().map(str::trim) {
            if line.contains(&path) {
                sessions.insert(format!("sid={last},"));
            } else {
                last = line.trim_end_matches(':');
            }
        }
        let all = self.server.four_letter("cons").unwrap();
        let ours = |line: &&str| sessions.iter().any(|session| line.contains(session));
        all.lines().filter(ours).map(str::to_owned).collect()
    }

    /// The addresses from which this prefix's sessions are connected.
    pub(crate) fn connected(&self) -> Vec<String> {
        self.statistics()
            .iter()
            .filter_map(|line| Some(line.split_once('[')?.0.to_owned()))
            .collect()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connected().len()
    }

    /// How many packets the server has received on these connections.
    pub(crate) fn received(&self) -> u64 {
        let figure = |line: &String| {
            let (_, rest) = line.split_once("recved=")?;
            let (digits, _) = rest.split_once(',')?;
            digits.parse::<u64>().ok()
        };
        let figures = self.statistics();
        figures.iter().map(|line| figure(line).unwrap_or_else(|| panic!("no figure: {line}"))).sum()
    }

    pub(crate) async fn admin(&self) -> Admin {
        let connector = Client::connector().with_session_timeout(TTL).with_connection_timeout(SOON);
        Admin(connector.connect(&self.server.addr().to_string()).await.unwrap())
    }
}

type Shared = Mutex<Weak<ZooKeeperServer>>;

fn shared(server: &Shared, options: fn() -> ZooKeeperOptions) -> Arc<ZooKeeperServer> {
    // A failed test does not make the server unusable.
    let mut shared = server.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(ZooKeeperServer::start_with(options()).unwrap());
        *shared = Arc::downgrade(&server);
        server
    })
}

pub(crate) async fn connect(url: &str) -> Result<ZooKeeper> {
    ZooKeeper::connect(Config::from_url(StoreUrl::parse(url).unwrap())?).await
}

/// As [`connect`], but tries again while that may help, because a stalled server grants no session.
pub(crate) async fn connect_in_the_end(url: &str) -> ZooKeeper {
    persistently(async || connect(url).await).await
}

/// The error of a URL that must be refused, by a server that has the time to answer.
pub(crate) async fn refused(url: &str) -> Error {
    let refusal = async || match connect(url).await {
        Ok(zk) => panic!("it was not refused: {zk:?}"),
        Err(error) if error.is_temporary() => Err(error),
        Err(error) => Ok(error),
    };
    persistently(refusal).await
}

pub(crate) fn locker(backend: ZooKeeper) -> Locker {
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT);
    // The test is about the store's own queue.
    Locker::new(backend).with_defaults(options).unwrap().with_process_gate(false)
}

pub(crate) fn spec(name: &str) -> ClaimSpec {
    claims::spec(name, TTL, OP_TIMEOUT)
}

pub(crate) fn claim(backend: &ZooKeeper, name: &str) -> Box<dyn Claim> {
    backend.claim(spec(name)).unwrap()
}

/// A claim for some of the permits of a semaphore.
pub(crate) fn permits(backend: &ZooKeeper, name: &str, count: u32, limit: u32) -> Box<dyn Claim> {
    let number = |n| NonZeroU32::new(n).unwrap();
    let mut spec = spec(name);
    spec.name = LockName::new(Kind::Semaphore, name).unwrap();
    spec.mode = Mode::Permits { count: number(count), limit: number(limit) };
    backend.claim(spec).unwrap()
}

/// A claim for a read/write lock.
pub(crate) fn rw(backend: &ZooKeeper, name: &str, mode: Mode) -> Box<dyn Claim> {
    let mut spec = spec(name);
    (spec.name, spec.mode) = (LockName::new(Kind::RwLock, name).unwrap(), mode);
    backend.claim(spec).unwrap()
}

/// A claim, and the signal that counts its wake-ups.
pub(crate) fn waiter(backend: &ZooKeeper, name: &str) -> (Box<dyn Claim>, Arc<WakeSignal>) {
    claims::waiter(backend, spec(name))
}

/// Attempts until granted. Between attempts, waits only for the store: a lost wake-up fails the
/// test.
pub(crate) async fn lock(claim: &mut Box<dyn Claim>) -> Grant {
    let start = Instant::now();
    loop {
        match claim.attempt(Wait::Queue).await {
            Ok(Attempt::Granted(grant)) => return grant,
            // The store says that it cannot wake the claim.
            Ok(Attempt::Busy { retry_after: Some(pause), .. }) => sleep(pause).await,
            Ok(Attempt::Busy { .. }) => woken(claim).await,
            // A stalled server has not answered in time.
            Err(error) => {
                assert!(error.is_temporary() && start.elapsed() < SOON, "{error}");
                sleep(LOOK_AGAIN).await;
            }
        }
    }
}

pub(crate) async fn woken(claim: &mut Box<dyn Claim>) {
    let woken = timeout(SOON, claim.changed()).await.is_ok();
    assert!(woken, "nobody woke {claim:?}");
}

/// Loses the reply of a request. `meanwhile` ends when the request has been applied.
pub(crate) async fn unanswered<T: Debug>(
    proxy: &Proxy,
    request: impl Future<Output = Result<T>>,
    meanwhile: impl Future<Output = ()>,
) {
    proxy.set(|toxics| toxics.down.discard = true);
    let applied = async {
        meanwhile.await;
        // Both at once, so that a reply that is still under way is lost as well.
        proxy.reset_all();
        proxy.heal();
    };
    let (answer, ()) = tokio::join!(request, applied);
    let error = answer.unwrap_err();
    assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}");
}

/// A second client, with the plain client library.
pub(crate) struct Admin(pub(crate) Client);

impl Admin {
    pub(crate) async fn children(&self, folder: &str) -> Vec<String> {
        let mut children = self.0.list_children(folder).await.unwrap_or_default();
        children.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
        children
    }

    /// The zxid that made a node.
    pub(crate) async fn created(&self, path: &str) -> u64 {
        self.stat(path).await.czxid.cast_unsigned()
    }

    pub(crate) async fn stat(&self, path: &str) -> Stat {
        self.0.check_stat(path).await.unwrap().unwrap_or_else(|| panic!("{path} is not there"))
    }

    pub(crate) async fn exists(&self, path: &str) -> bool {
        self.0.check_stat(path).await.unwrap().is_some()
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.0.delete(path, None).await.unwrap();
    }

    /// Deletes a node and all nodes below it, as an operator does by hand.
    pub(crate) async fn delete_all(&self, path: &str) {
        loop {
            for child in self.children(path).await {
                Box::pin(self.delete_all(&format!("{path}/{child}"))).await;
            }
            match self.0.delete(path, None).await {
                // The end of its session may have deleted it first.
                Ok(()) | Err(zookeeper_client::Error::NoNode) => return,
                // A client has made another child meanwhile.
                Err(zookeeper_client::Error::NotEmpty) => {}
                Err(error) => panic!("{path}: {error}"),
            }
        }
    }
}
