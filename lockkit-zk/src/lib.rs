//! lockkit's backend for Apache ZooKeeper: fair mutexes, read/write locks, semaphores and
//! elections, whose leases are proved by the leader.
//!
//! Each claim is an ephemeral sequential node in the folder of its lock, in Curator's layout: Java
//! programs that use `InterProcessMutex` or `InterProcessReadWriteLock` on the same path queue up
//! with lockkit's. A waiter watches the one node that stands in its way. Works with ZooKeeper 3.6
//! and later.
//!
//! A Java program meets the mutex `orders/42` of lockkit, and the read/write lock of that name, at
//!
//! ```java
//! new InterProcessMutex(client, "/lockkit/mutex/orders%2F42")
//! new InterProcessReadWriteLock(client, "/lockkit/rwlock/orders%2F42")
//! ```
//!
//! Curator's `LeaderSelector` on `/lockkit/election/…` is such a mutex, too: it and lockkit's
//! candidates get their turns in one queue. A Java leader has no term, so lockkit's observers see
//! nobody while it leads.
//!
//! A Java thread may take the read lock while it holds the write lock, and then give back the write
//! lock, only with Curator 5.5 or later. Older versions make a reader's node behind those who wait
//! (CURATOR-621), so the next writer gets the lock beside that reader, whether that writer uses
//! lockkit or Curator.
//!
//! Inspection shows a Java holder by the data of its node alone, and `force_release` leaves it
//! alone. Semaphores, and mutexes and elections with `fair=false`, are lockkit's own. Locks of
//! kazoo (Python) are not supported: where a folder holds such a node, all calls fail as
//! [`WrongType`](lockkit_core::ErrorKind::WrongType).
//!
//! ```text
//! zk://[user:password@]host[:port][,host[:port]…][/chroot][?parameter=value&…]
//! ```
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `session_timeout` | `10s` | after how long the servers free what a dead process held; they have bounds of their own |
//! | `prefix` | `lockkit` | the folder of all locks: `/<prefix>/<kind>/<name>`, where `/`, `%` and what ZooKeeper forbids are escaped |
//! | `heartbeat` | `write` | a majority agrees to each heartbeat; `sync` costs less and is weaker, see [`Heartbeat`] |
//! | `fair` | `true` | with `false`, mutexes and elections have no queue; see [`Config::with_unfair_mutexes`] |
//! | `acl` | `open` | with `creator`, only the credentials of the URL may touch the locks |
//! | `connect_timeout` | 2/9 of the session timeout per server, at most `2s` | for how long one server is asked |
//!
//! The scheme `zks` uses TLS and needs the cargo feature `tls`. Its parameter `ca` names the PEM
//! file of the certificates to trust, `cert` and `key` those of a client that must show one.
//!
//! What stands below the prefix:
//!
//! | node | what | for how long |
//! |---|---|---|
//! | `<kind>/<name>` | the folder of a lock, and in it those who hold it or wait | a container: the servers delete it when it is idle |
//! | `note/<kind>/<name>` | the note beside a mutex or an election: `lockkit/1 <revision>`, and its text on the next line | until somebody deletes it |
//! | `clock` | nothing: it is written to be told the leader's time | as `note` |
//! | `session/…` | the nodes that heartbeats write to, not with `heartbeat=sync` | their session |
//!
//! The locks of a locker live on one session, or several where very many wait, which end with the
//! process. The session timeout, not the ttl, decides when the servers free what a dead process
//! held; a ttl below it is refused.
//!
//! What can break it:
//! * An ensemble that is rebuilt or restored from a backup forgets locks and its count of
//!   transactions, and with it the order of fencing tokens; `token_base` mends that.
//! * With `heartbeat=sync`, leases assume that a deposed leader stops answering within a third of
//!   the session timeout. The default heartbeat assumes nothing.
//! * Leases assume a session timeout of two server ticks at least, which holds unless
//!   `minSessionTimeout` was lowered; no observer master; and that nobody lowers
//!   `maxSessionTimeout` below the session timeout while clients run.
//!
//! ## Features
//!
//! | feature | |
//! |---|---|
//! | `tls` | the scheme `zks` |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod bare;
mod changed;
mod claim;
mod config;
mod diagnosis;
mod error;
mod folder;
mod inspect;
mod names;
mod node_ref;
mod note;
mod path;
mod queue;
mod record;
mod session;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod unfair;
mod version;
mod watching;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};
/// The client library, for those who share its types.
pub use zookeeper_client;

pub use self::{
    backend::ZooKeeper,
    config::{Acl, Config, Heartbeat},
};

/// The URL schemes of this backend; `zks` needs the cargo feature `tls`.
pub const SCHEMES: &[&str] = &["zk", "zks"];

/// Teaches a registry the schemes of this backend.
pub fn register(registry: &mut Registry) {
    registry.register(ZkConnector);
}

struct ZkConnector;

#[async_trait::async_trait]
impl Connector for ZkConnector {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(ZooKeeper::connect(Config::from_url(url)?).await?))
    }
}
