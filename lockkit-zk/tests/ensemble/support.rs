//! Lockers on chosen servers, and a second client that reads the tree directly.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_core::{LockGuard, LockOptions, Locker, Mutex};
use lockkit_fixture::ZooKeeperEnsemble;
pub(crate) use lockkit_fixture::slack;
use lockkit_zk::{
    Config, Heartbeat, ZooKeeper,
    zookeeper_client::{Client, EventType},
};
use tokio::{task::JoinHandle, time::sleep};

/// Required events happen within this time, or a test fails. No test waits for it to pass.
pub(crate) const SOON: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A locker that knows these servers, with lock options that fit its session.
pub(crate) async fn locker(servers: &[SocketAddr], session: Duration) -> Result<Locker, Failed> {
    locker_by(servers, session, Heartbeat::Sync).await
}

pub(crate) async fn locker_by(
    servers: &[SocketAddr],
    session: Duration,
    heartbeat: Heartbeat,
) -> Result<Locker, Failed> {
    let servers = servers.iter().map(|addr| (addr.ip().to_string(), addr.port()));
    let config = Config::new(servers).with_session_timeout(session)?.with_heartbeat(heartbeat);
    // The test is about the store's own queue.
    let locker = Locker::new(ZooKeeper::connect(config).await?).with_process_gate(false);
    Ok(locker.with_defaults(LockOptions::new().with_ttl(session))?)
}

pub(crate) fn mutex(locker: &Locker, name: &str) -> Result<Mutex, Failed> {
    Ok(locker.mutex(name)?)
}

pub(crate) fn all(ensemble: &ZooKeeperEnsemble) -> Vec<SocketAddr> {
    ensemble.nodes().iter().map(|node| node.addr()).collect()
}

/// Waits for a lock in the background, and returns when it was granted.
pub(crate) fn contend(
    locker: &Locker,
    name: &str,
) -> Result<JoinHandle<(LockGuard, Instant)>, Failed> {
    let mutex = mutex(locker, name)?;
    Ok(tokio::spawn(async move {
        loop {
            // A waiter may see an election as an error.
            if let Ok(guard) = mutex.lock().await {
                return (guard, Instant::now());
            }
        }
    }))
}

/// Waits until the condition has a value.
pub(crate) async fn until<T>(
    what: &str,
    mut condition: impl AsyncFnMut() -> Option<T>,
) -> Result<T, Failed> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if start.elapsed() > SOON {
            return Err(format!("not within {SOON:?}: {what}").into());
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// As [`until`], with the bound of a promise.
pub(crate) async fn within<T>(
    bound: Duration,
    what: &str,
    work: impl Future<Output = T>,
) -> Result<T, Failed> {
    let late = |_| Failed::from(format!("not within {bound:?}: {what}"));
    tokio::time::timeout(bound, work).await.map_err(late)
}

/// A session of its own on one server.
pub(crate) struct Admin(Client);

/// The node of a mutex that is held and has no waiters.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) path: String,
    pub(crate) session: i64,
    pub(crate) created: i64,
}

impl Admin {
    pub(crate) async fn on(server: SocketAddr) -> Result<Self, Failed> {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
        Ok(Self(connector.connect(&server.to_string()).await?))
    }

    /// The first node in the queue.
    pub(crate) async fn node(&self, name: &str) -> Result<Node, Failed> {
        let folder = format!("/lockkit/mutex/{name}");
        self.0.sync("/").await?;
        let mut children = self.0.list_children(&folder).await?;
        children.sort_by_key(|child| child.rsplit('-').next().map(str::to_owned));
        let first = children.first().ok_or_else(|| format!("nothing is in {folder}"))?;
        let path = format!("{folder}/{first}");
        let stat = self.0.check_stat(&path).await?.ok_or_else(|| format!("{path} is gone"))?;
        Ok(Node { path, session: stat.ephemeral_owner, created: stat.czxid })
    }

    /// Whether the node still exists.
    pub(crate) async fn has(&self, node: &Node) -> Result<bool, Failed> {
        self.0.sync("/").await?;
        Ok(self.0.check_stat(&node.path).await?.is_some_and(|stat| stat.czxid == node.created))
    }

    /// When the node is deleted, as this server sees it.
    pub(crate) async fn freed(&self, node: &Node) -> Result<JoinHandle<Instant>, Failed> {
        let (stat, watcher) = self.0.check_and_watch_stat(&node.path).await?;
        stat.ok_or_else(|| format!("{} is gone", node.path))?;
        Ok(tokio::spawn(async move {
            let event = watcher.changed().await;
            let now = Instant::now();
            assert_eq!(event.event_type, EventType::NodeDeleted);
            now
        }))
    }

    pub(crate) async fn sync(&self) -> Result<(), Failed> {
        Ok(self.0.sync("/").await?)
    }
}

/// The server that a session is connected to.
pub(crate) fn server_of(ensemble: &ZooKeeperEnsemble, session: i64) -> Option<usize> {
    let sid = format!("sid=0x{session:x},");
    ensemble
        .nodes()
        .iter()
        .position(|node| node.four_letter("cons").is_ok_and(|cons| cons.contains(&sid)))
}
