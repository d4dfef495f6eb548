//! lockkit's backend for Redis and Valkey: one server, the primary that sentinels name, or a
//! cluster.
//!
//! A mutex is a plain string key with a time to live, as `SET key value NX PX` makes it. So it
//! excludes other clients that lock in that way, and they exclude it. Everything else happens in
//! short scripts on the server's clock, one round trip each.
//!
//! The backend is made for Redis 5 and later, and tested with Redis 7 and Valkey 9. From Redis 6
//! on, push messages wake the waiters. On a cluster, these messages stay within a name's slot from
//! Redis 7 on.
//!
//! ```text
//! redis://[user:password@]host[:6379]/[database][?parameter=value&…]
//! redis+unix:///path/to/socket[?db=N&parameter=value&…]
//! redis+sentinel://[user:password@]host1[:26379],host2,…/service[/database][?parameter=value&…]
//! redis+cluster://[user:password@]host1[:6379],host2,…/[?parameter=value&…]
//! ```
//!
//! `rediss`, `rediss+sentinel` and `rediss+cluster` are the same over TLS, and need the cargo
//! feature `tls`. User and password are those of the servers that keep the locks. It is enough if
//! one of the sentinels, or one of the nodes of a cluster, answers.
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `prefix` | `lockkit` | starts every key: `<prefix>:<kind>:{name}` |
//! | `keys` | `escaped` | with `raw`, a mutex's key is its name; see [`Config::with_raw_keys`] |
//! | `connect_timeout` | `2s` | bounds opening a connection, and trust in a silent one |
//! | `strict` | `false` | with `true`, a server that may evict keys is refused |
//! | `wait_replicas` | | how many replicas must confirm each grant; see [`Config::with_replicas`] |
//! | `wait_timeout` | `1s` | how long they may take, at most half of `op_timeout` |
//! | `sentinel_username`, `sentinel_password` | | for sentinels that want a login of their own |
//! | `ca` | the system's | with TLS: a PEM file with the authorities to trust |
//! | `cert`, `key` | | with TLS: PEM files with lockkit's own certificate and key |
//!
//! [`Config::from_client`] takes address, TLS settings, login and database from a client that the
//! program has.
//!
//! In a key, `%`, `{` and `}` of the name are escaped. Replicas must also confirm renewals, raised
//! tokens and notes. Use `cert` and `key` if the server asks for a certificate.
//!
//! Two things can break exclusion. Redis replicates asynchronously, so a failover can lose a lock;
//! `wait_replicas` makes that less likely. And leases follow the server's wall clock.
//!
//! Fencing tokens rise all the same, because they are never below the server's time in
//! microseconds. The exception is a lost last token after that clock was set back.
//!
//! While a slot of a cluster moves to another node, renewals of mutexes work. Other requests for
//! the slot's names wait, or fail as unavailable.
//!
//! The store has these keys. All keys of a name are in one slot, and `<prefix>:keys` exists once.
//! Other texts that begin with the prefix are channels.
//!
//! | key | content | kept |
//! |---|---|---|
//! | `<prefix>:<kind>:{name}`, or `…:grants` and `…:holders` | the holders | for their lease |
//! | `…:queue`, `…:live` | the waiters | as long as a claim waits |
//! | `…:note` | the note of a mutex or election: `revision` and `text` | until a user deletes it |
//! | `<prefix>:token`, on a cluster `<prefix>:token:{number}` for each slot | the last token of all names | until a user deletes it |
//! | `<prefix>:keys` | `escaped` or `raw`, for all lockers of the prefix | until a user deletes it |
//!
//! A note is a hash. All lockers of a prefix have the same keys for mutexes.
//!
//! This is format 1. In a newer format, the last token begins with `lockkit/` and the format's
//! number, and a note has a field `format`. lockkit refuses names that are marked so with
//! [`NewerFormat`](lockkit_core::ErrorKind::NewerFormat), and leaves them as they are.
//!
//! The store's time is that of the primary. On a cluster, it is that of the primary with slot 0.
//!
//! A user needs only these rights, here for the default prefix:
//!
//! ```text
//! # One server
//! ~lockkit:* &lockkit:* +eval +evalsha +time +role +config|get +command|info +scan +exists +get +mget +set +del +pttl +pexpire
//! +zadd +zcount +zrange +zrangebyscore +zrem +zscore +hget +hmget +hgetall +hexists +hset +hmset +hdel
//! +publish +subscribe +pubsub|numsub
//! ```
//! ```text
//! # A cluster
//! +cluster|slots +asking +spublish +ssubscribe +sunsubscribe +pubsub|shardnumsub
//! ```
//!
//! A database number also needs `+select`, `wait_replicas` needs `+wait`, and `keys=raw` needs the
//! names of the mutexes. Sentinels need `+sentinel|get-master-addr-by-name`. Without rights on
//! channels, waiters only poll. `+scan` is needed only for lists of names.
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
mod names;
mod note;
mod reply;
mod role;
mod script;
mod scripts;
mod servers;
mod shared;
mod store;
mod time;
mod unanswered;
mod waiting;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};
/// The client library, for programs that share its types.
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

/// Adds the schemes of this backend to a registry.
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
