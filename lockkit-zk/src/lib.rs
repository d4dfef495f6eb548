//! lockkit's backend for Apache ZooKeeper: fair mutexes, read/write locks, semaphores and
//! elections, whose leases are proved by the leader.
//!
//! Each claim is an ephemeral sequential node in the folder of its lock, in Curator's layout. Java
//! programs that use `InterProcessMutex` or `InterProcessReadWriteLock` on the same path wait in
//! the same queue as lockkit's claims. A waiter watches the one node that blocks its turn. The
//! backend works with ZooKeeper 3.6 and later.
//!
//! A Java program reaches lockkit's mutex `orders/42`, and the read/write lock of that name, at
//!
//! ```java
//! new InterProcessMutex(client, "/lockkit/mutex/orders%2F42")
//! new InterProcessReadWriteLock(client, "/lockkit/rwlock/orders%2F42")
//! ```
//!
//! Curator's `LeaderSelector` on `/lockkit/election/…` is such a mutex, too: its candidates and
//! lockkit's candidates wait in one queue. A Java leader has no term, so lockkit's observers see no
//! leader while it leads.
//!
//! A Java thread may take the read lock while it holds the write lock. It may then release the
//! write lock only with Curator 5.5 or later. Older versions make the reader's node behind the
//! waiters (CURATOR-621). The next writer then gets the lock beside that reader, whether that
//! writer uses lockkit or Curator.
//!
//! Inspection shows a Java holder only by the data of its node, and `force_release` never frees it.
//! Java programs cannot share semaphores, nor mutexes and elections with `fair=false`. Locks of
//! kazoo (Python) are not supported. If a folder contains such a node, all calls fail as
//! [`WrongType`](lockkit_core::ErrorKind::WrongType).
//!
//! ```text
//! zk://[user:password@]host[:port][,host[:port]…][/chroot][?parameter=value&…]
//! ```
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `session_timeout` | `10s` | when the servers free the locks of a dead process |
//! | `prefix` | `lockkit` | the folder of all locks |
//! | `heartbeat` | `write` | the request that proves the session, see [`Heartbeat`] |
//! | `fair` | `true` | `false`: no queue, see [`Config::with_unfair_mutexes`] |
//! | `acl` | `open` | `creator`: only the credentials of the URL have access |
//! | `connect_timeout` | see below | how long the client asks one server |
//!
//! The servers have limits of their own for `session_timeout`. The path of a lock is
//! `/<prefix>/<kind>/<name>`, in which `/`, `%` and the characters that ZooKeeper forbids are
//! escaped. With `heartbeat=write` a majority agrees to each heartbeat; `sync` costs less and is
//! weaker. With `fair=false`, mutexes and elections have no queue. By default, `connect_timeout` is
//! 2/9 of the session timeout, divided by the number of servers, and at most `2s`.
//!
//! [`Config::from_client`] uses the session of a client that the program has, instead of sessions
//! of lockkit's own.
//!
//! The scheme `zks` uses TLS and needs the cargo feature `tls`. Its parameter `ca` names the PEM
//! file of the certificates to trust. The parameters `cert` and `key` name the files of a client
//! that must show a certificate.
//!
//! These nodes are below the prefix:
//!
//! | node | content | lifetime |
//! |---|---|---|
//! | `<kind>/<name>` | the folder of a lock, with its holders and waiters | until the servers delete the idle container |
//! | `note/<kind>/<name>` | the note beside a mutex or an election | until a user deletes it |
//! | `clock` | nothing: a write to it shows the leader's time | until a user deletes it |
//! | `session/…` | the nodes that heartbeats write to, unless `heartbeat=sync` | until their session ends |
//!
//! A note's data is `lockkit/1 <revision>`, and its text on the next line.
//!
//! The locks of a locker live on one session, or on several if very many claims wait. The sessions
//! end with the process. The session timeout, not the ttl, decides when the servers free the locks
//! of a dead process. lockkit refuses a ttl below the session timeout.
//!
//! These faults can break a lock:
//! * An ensemble that is rebuilt or restored from a backup forgets the locks and its count of
//!   transactions. Fencing tokens then no longer rise; `token_base` repairs that.
//! * With `heartbeat=sync`, leases assume that a deposed leader stops answering within a third of
//!   the session timeout. The default heartbeat does not assume this.
//! * Leases assume a session timeout of at least two server ticks. This holds unless
//!   `minSessionTimeout` was lowered. They also assume that there is no observer master. And they
//!   assume that `maxSessionTimeout` is never set below the session timeout while clients run.
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
/// The client library, for programs that share its types.
pub use zookeeper_client;

pub use self::{
    backend::ZooKeeper,
    config::{Acl, Config, Heartbeat},
};

/// The URL schemes of this backend. `zks` needs the cargo feature `tls`.
pub const SCHEMES: &[&str] = &["zk", "zks"];

/// Registers the schemes of this backend.
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
