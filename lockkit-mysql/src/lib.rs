//! lockkit's backend for MySQL and MariaDB. It keeps locks in tables of their own, by one of two
//! strategies.
//!
//! * **`optimistic`**, the default: a row is a lease. One statement takes it, one releases it, and
//!   one renews all leases that are due together. The server's clock alone decides when a lease
//!   ends. Holders and waiters keep no connection. This strategy has mutexes, read/write locks and
//!   semaphores. A writer that waits keeps new readers away.
//! * **`pessimistic`**: a row lock, held by a transaction on a connection of its own
//!   (`SELECT … FOR UPDATE`). A waiter waits in the server, and is granted the lock a few
//!   milliseconds after a holder's process has died. This strategy has only mutexes, with a ttl of
//!   at least one second. Your own statements can run in the lock's transaction, and the release
//!   commits them: see [`LockTransaction`]. A transaction of yours can take such a lock, too: see
//!   [`MySql::lock_in_transaction`].
//!
//! Inside a process, a mutex passes from one owner to the next without being free in between. With
//! `optimistic`, one statement does that. With `pessimistic`, a statement on another connection
//! writes the new token, and the next owner takes over the connection that has the row lock. A row
//! lock whose transaction was used is committed and freed instead, so that the next owner gets
//! nothing of those statements. No client can see which other clients wait for a row. So a locker
//! frees the row lock when other processes are to go first.
//!
//! Tokens can be raised to 2^62 at most. A list of names has each name with a live lease or with
//! the live connection of a holder. It does not have names that only have waiters.
//!
//! Locks of the two strategies do not exclude each other. So the tables record their strategy, and
//! a client with the other strategy is refused.
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
//! | `create_table` | `true` | with `false`, a missing table is an error |
//! | `pool_size` | `16` | largest number of connections; with `pessimistic` 2 at least |
//! | `connect_timeout` | `2s` | for opening a connection |
//! | `retention` | `24h` | how long an unused name's row is kept, a minute at least |
//! | `strict_lease` | `false` | for `pessimistic`: see [`Config::with_strict_lease`] |
//!
//! [`Config::from_pool`] uses a pool of the program instead of connections of lockkit's own.
//!
//! With `create_table=false`, the error shows the statements to run. With `pessimistic`, each held
//! lock takes a connection, and so does the first waiter of each name in a process.
//!
//! The scheme `mysqls` uses TLS and needs the cargo feature `tls`. Its parameter `ca` names the PEM
//! file of the certificates to trust instead of the public ones. `cert` and `key` name the PEM
//! files for a client that must show a certificate.
//!
//! lockkit makes the tables at first use, or an operator makes them with [`schema::SQL`]. The user
//! needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on them, and `CREATE` only to make them:
//!
//! ```sql
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_meta TO 'app'@'%';
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_lock TO 'app'@'%';
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_holder TO 'app'@'%';   -- pessimistic: lockkit_row, lockkit_fence
//! GRANT SELECT, INSERT, UPDATE, DELETE ON shop.lockkit_note TO 'app'@'%';
//! ```
//!
//! The rows of a name are removed when the name was not used for the retention. Its note (in
//! `lockkit_note`, in both strategies) stays until an operator deletes it.
//!
//! These events can break a lock:
//! * `optimistic`: a step of the server's clock ends leases early or late. Tokens rise
//!   nevertheless.
//! * `pessimistic`: a `KILL` or a restart of the server ends a connection and frees its lock at
//!   once. Its holder may believe in the lock for up to a second more. A holder that hears nothing
//!   may believe in it until its lease ends. Its token is smaller than the next one.
//!   `strict_lease=true` closes this gap.
//! * Both: a failover to a replica that has not seen the last commits. Also a server that loses
//!   commits in a crash (`innodb_flush_log_at_trx_commit` other than 1).
//!
//! Row locks hold on one server only. So `pessimistic` refuses clusters with several primaries
//! (Galera, Group Replication in multi-primary mode).
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
mod strategy;
mod tables;
mod time;
#[cfg(feature = "tls")]
mod tls;
mod waiting;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};
/// The client library, for programs that share its types.
pub use mysql_async;

pub use self::{
    backend::MySql,
    config::{Config, Strategy},
    pessimistic::LockTransaction,
};

/// The URL schemes of this backend.
pub const SCHEMES: &[&str] = &["mysql", "mysqls", "mysql+unix"];

/// Adds the schemes of this backend to a registry.
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
