//! lockkit's backend for MySQL and MariaDB: locks in tables of their own, by one of two strategies.
//!
//! * **`optimistic`**, the default: a row is a lease. One statement takes it, one gives it back,
//!   and one renews all that are due together; the server's clock alone decides when a lease ends.
//!   Holders and waiters keep no connection. Mutexes, read/write locks (a writer that waits keeps
//!   new readers away) and semaphores.
//! * **`pessimistic`**: a row lock, held by a transaction on a connection of its own
//!   (`SELECT … FOR UPDATE`). Whoever waits, waits in the server, and is granted a few milliseconds
//!   after a holder's process has died. Mutexes only, with a ttl of one second at least. One's own
//!   statements can run in the lock's transaction and are committed with the release: see
//!   [`LockTransaction`].
//!
//! Inside a process, a mutex goes from one owner to the next without being free in between: by one
//! statement, or on the connection that has the row lock, after a statement that writes the new
//! token on another one. A row lock whose transaction was used is committed and freed instead, so
//! that nothing of one owner's statements is the next one's. Nobody can see who waits for a row:
//! where others are to go first, the lock is freed.
//!
//! Tokens can be raised to 2^62 at most. Lists of names have those that a live lease or a live
//! holder's connection speaks for, and not those that are only waited for.
//!
//! Locks of the two do not exclude each other, so the tables record which one they are for, and the
//! other is refused.
//!
//! ```text
//! mysql://[user[:password]@]host[:port]/database[?parameter=value&…]
//! mysql+unix:///path/to/socket?db=database[&parameter=value&…]      with user and password as user:password@ before the path
//! ```
//!
//! | parameter | default | meaning |
//! |---|---|---|
//! | `strategy` | `optimistic` | or `pessimistic` |
//! | `table_prefix` | `lockkit` | starts the names of the tables |
//! | `create_table` | `true` | with `false`, missing tables are an error that shows the statements to run |
//! | `pool_size` | `16` | how many connections there may be; with `pessimistic` 2 at least, as each lock that is held takes one, and so does the first waiter of each name in a process |
//! | `connect_timeout` | `2s` | for opening a connection |
//! | `retention` | `24h` | how long the row of a name that nobody uses is kept, a minute at least |
//! | `strict_lease` | `false` | for `pessimistic`: see [`Config::with_strict_lease`] |
//!
//! The scheme `mysqls` uses TLS and needs the cargo feature `tls`. Its parameter `ca` names the PEM
//! file of the certificates to trust instead of the public ones, `cert` and `key` those of a client
//! that must show one.
//!
//! The tables are made at first use, or by [`schema::SQL`]. The user needs `SELECT`, `INSERT`,
//! `UPDATE` and `DELETE` on them, and `CREATE` only to make them:
//!
//! ```sql
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_meta TO 'app'@'%';
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_lock TO 'app'@'%';
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_holder TO 'app'@'%';   -- pessimistic: lockkit_row, lockkit_fence
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_note TO 'app'@'%';
//! ```
//!
//! The rows of a name go when it was not used for the retention, but for its note (in
//! `lockkit_note`, in both strategies), which stays until somebody deletes it.
//!
//! What can break it:
//! * `optimistic`: a step of the server's clock ends leases early or late. Tokens rise all the
//!   same.
//! * `pessimistic`: a connection that dies, by `KILL` or a restart of the server, frees its lock at
//!   once, while its holder may believe in it for up to a second more, or as long as its lease if
//!   it hears nothing. Its token is smaller than the next one. `strict_lease=true` closes this gap.
//! * Both: a failover to a replica that has not seen the last commits, and a server that loses
//!   commits in a crash (`innodb_flush_log_at_trx_commit` other than 1). Row locks hold on one
//!   server only: clusters with several primaries (Galera, Group Replication in multi-primary mode)
//!   are refused with `pessimistic`.
//!
//! ## Features
//!
//! | feature | |
//! |---|---|
//! | `tls` | the scheme `mysqls` |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod bare;
mod channel;
mod config;
mod connection;
mod diagnosis;
mod error;
mod garbage_collector;
mod handshake;
mod idle;
mod names;
mod note;
mod optimistic;
mod pessimistic;
mod pool;
mod schedule;
pub mod schema;
mod server;
mod sql;
mod statement_killer;
mod tables;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod waiting;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};
/// The client library, for those who share its types.
pub use mysql_async;

pub use self::{
    backend::MySql,
    config::{Config, Strategy},
    pessimistic::LockTransaction,
};

/// The URL schemes of this backend.
pub const SCHEMES: &[&str] = &["mysql", "mysqls", "mysql+unix"];

/// Teaches a registry the schemes of this backend.
pub fn register(registry: &mut Registry) {
    registry.register(MySqlConnector);
}

struct MySqlConnector;
#[async_trait::async_trait]
impl Connector for MySqlConnector {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(MySql::connect(Config::from_url(url)?).await?))
    }
}
