//! lockkit's backend for Redis: exclusive locks on one server.
//!
//! The lock is a plain string key with a time to live, as `SET key value NX PX` makes it, so that it excludes and
//! is excluded by other clients which lock in that way. Everything else happens in short scripts, one round trip
//! each, on the server's clock. Works with Redis 5 and later; from Redis 6 on waiters are woken by push messages.
//!
//! ```text
//! redis://[user:password@]host[:port]/[database][?parameter=value&…]
//! redis+unix:///path/to/socket[?db=N&parameter=value&…]
//! ```
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `prefix` | `lockkit` | starts every key: `<prefix>:<kind>:{name}`, where `%`, `{` and `}` of the name are escaped |
//! | `key` | `escaped` | with `raw`, the lock key of a mutex is its name as it is; see [`Config::with_raw_keys`] |
//! | `connect_timeout` | `2s` | for opening a connection, and for how long a silent one is trusted |
//! | `strict` | `false` | with `true`, a server that may evict keys is refused |
//!
//! What can break it: Redis replicates asynchronously, so a failover can lose a lock; and leases follow the server's
//! wall clock. Fencing tokens rise all the same, as they are never below the server's time in microseconds.

mod backend;
mod claim;
mod cluster;
mod config;
mod ears;
mod error;
mod family;
mod handshake;
mod inspect;
mod keys;
mod link;
mod node;
mod pool;
mod replicas;
mod reply;
mod route;
mod script;
mod sentinel;
mod shared;
mod store;
mod strays;
#[cfg(feature = "tls")]
mod tls;
mod waiting;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};
/// The client library, for those who share its types.
pub use redis;

pub use self::{backend::Redis, config::Config};

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

    async fn connect(&self, url: StoreUrl) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Redis::connect(Config::from_url(url)?).await?))
    }
}
