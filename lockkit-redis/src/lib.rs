//! lockkit's backend for Redis and Valkey: one server, the primary that sentinels name, or a
//! cluster.
//!
//! A mutex is a plain string key with a time to live, as `SET key value NX PX` makes it, so that it
//! excludes and is excluded by other clients which lock in that way. Everything else happens in
//! short scripts, one round trip each, on the server's clock. Made for Redis 5 and later, tested
//! with Redis 7 and Valkey 9; from Redis 6 on waiters are woken by push messages, on a cluster from
//! Redis 7 on by messages that stay within a name's slot.
//!
//! ```text
//! redis://[user:password@]host[:6379]/[database][?parameter=value&…]
//! redis+unix:///path/to/socket[?db=N&parameter=value&…]
//! redis+sentinel://[user:password@]host1[:26379],host2,…/service[/database][?parameter=value&…]
//! redis+cluster://[user:password@]host1[:6379],host2,…/[?parameter=value&…]
//! ```
//!
//! `rediss`, `rediss+sentinel` and `rediss+cluster` are the same over TLS and need the cargo
//! feature `tls`. User and password are those of the servers that keep the locks. Of sentinels and
//! of the nodes of a cluster, one that answers is enough.
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `prefix` | `lockkit` | starts every key: `<prefix>:<kind>:{name}`, where `%`, `{` and `}` of the name are escaped |
//! | `keys` | `escaped` | with `raw`, the lock key of a mutex is its name as it is; see [`Config::with_raw_keys`] |
//! | `connect_timeout` | `2s` | for opening a connection, and for how long a silent one is trusted |
//! | `strict` | `false` | with `true`, a server that may evict keys is refused |
//! | `wait_replicas` | | so many replicas must confirm a grant, a renewal or a note; see [`Config::with_replicas`] |
//! | `wait_timeout` | `1s` | within this time, and within half of `op_timeout` |
//! | `sentinel_username`, `sentinel_password` | | for sentinels that want a login of their own |
//! | `ca` | the system's | with TLS: the file with the certificates, in PEM, of the authorities to trust |
//! | `cert`, `key` | | with TLS: the files with our own certificate and its key, in PEM, if the server asks for one |
//!
//! What can break it: Redis replicates asynchronously, so a failover can lose a lock, less likely
//! with `wait_replicas`; and leases follow the server's wall clock. Fencing tokens rise all the
//! same, as they are never below the server's time in microseconds, unless the last one is lost and
//! that clock was set back. While a slot of a cluster moves to another node, renewals of mutexes
//! work and other requests for its names wait, or fail as unavailable.
//!
//! What stands in the store of a name, all in one slot; what else begins with the prefix are
//! channels:
//!
//! | key | what | for how long |
//! |---|---|---|
//! | `<prefix>:<kind>:{name}`, or `…:grants` and `…:holders` | who holds it | its lease |
//! | `…:fence` | the last token | a day after the lease |
//! | `…:queue`, `…:live` | who waits | as long as somebody does |
//! | `…:note` | the note of a mutex or an election: a hash of `revision` and `text` | until somebody deletes it |
//! | `<prefix>:keys` | `escaped` or `raw`: the lockers of a prefix have the same keys for mutexes | until somebody deletes it |
//!
//! This is format 1. A newer one writes `lockkit/` and its number to the key `…:fence` first, and a
//! note has a field `format` then: what is marked so is refused with
//! [`NewerFormat`](lockkit_core::ErrorKind::NewerFormat), and left as it is.
//!
//! The store's time is that of the primary; on a cluster, of the one that has slot 0.
//!
//! These rights are enough, here for the default prefix:
//!
//! ```text
//! # One server
//! ~lockkit:* &lockkit:* +eval +evalsha +time +role +config|get +command|info +scan +exists +get +set +del +pttl +pexpire
//! +zadd +zcount +zrange +zrangebyscore +zrem +zscore +hget +hmget +hgetall +hexists +hset +hmset +hdel
//! +publish +subscribe +pubsub|numsub
//! ```
//! ```text
//! # A cluster
//! +cluster|slots +asking +spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub
//! ```
//!
//! Besides them, `+select` for a database number, `+wait` for `wait_replicas`, the names of mutexes
//! for `keys=raw`, and on sentinels `+sentinel|get-master-addr-by-name`. Without rights on
//! channels, waiters only poll; `+scan` is for lists of names alone.
//!
//! ## Features
//!
//! | feature | |
//! |---|---|
//! | `tls` | the schemes `rediss`, `rediss+sentinel` and `rediss+cluster` |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod bare;
mod claim;
mod config;
mod diagnosis;
mod error;
mod family;
mod inspect;
mod keys;
mod listing;
mod note;
mod reply;
mod role;
mod script;
mod servers;
mod shared;
mod store;
mod time;
mod unanswered;
mod waiting;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};
/// The client library, for those who share its types.
pub use redis;

pub use self::{
    backend::Redis,
    bare::{BareMutex, BareServers, MutexScripts, mutex_scripts},
    config::Config,
};

/// The URL schemes of this backend. Those with `rediss` need the cargo feature `tls`.
pub const SCHEMES: &[&str] = &[
    "redis",
    "redis+cluster",
    "redis+sentinel",
    "redis+unix",
    "rediss",
    "rediss+cluster",
    "rediss+sentinel",
];

/// Teaches a registry the schemes of this backend.
pub fn register(registry: &mut Registry) {
    registry.register(RedisConnector);
}

struct RedisConnector;
#[async_trait::async_trait]
impl Connector for RedisConnector {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Redis::connect(Config::from_url(url)?).await?))
    }
}
