//! A backend of lockkit that keeps its locks in one SQLite file. `docs/write-a-backend.md` explains
//! it.
//!
//! ```text
//! sqlite:///var/lib/app/locks.db
//! ```
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}", folder.path().join("locks.db").display());
//! let mut registry = lockkit_core::Registry::new();
//! lockkit_example_sqlite::register(&mut registry);
//! let locker = registry.connect(&url).await?;
//! let guard = locker.mutex("nightly")?.lock().await?;
//! // The work.
//! guard.release().await?;
//! # locker.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The backend offers exclusive locks and elections between the processes of one host. Each lock is
//! a row with an owner, a token and the end of its lease. The store does not wake waiters. A waiter
//! asks again after 10 ms, then less often, up to every 200 ms.
//!
//! * **The clock** is the wall clock of the host, read inside the transaction. If it is set
//!   forward, leases end early and two owners may hold one lock. If it is set back, the lock of a
//!   dead holder stays longer. The descriptor lists this as the exception `server_clock_step`.
//! * **Tokens** come from one counter for all names, which is never behind the wall clock in
//!   microseconds. So the backend can delete the row of a free lock. A restored backup gives no
//!   token twice, unless the clock was set back as well.
//! * **A crash of the host** may lose the last transactions (`synchronous=NORMAL`). Each holder
//!   that got its lock in such a transaction died with the host, and the counter continues from the
//!   clock.
//! * **A busy disk** can take longer to sync than a short lease lasts, so use a ttl of at least a
//!   second.
//! * **The file** must be on a disk of this host, because SQLite's WAL needs shared memory. Do not
//!   remove the file while it is in use.

mod backend;
mod claim;
mod config;
mod database;
mod error;

use std::sync::Arc;

use lockkit_core::{Connector, Registry, Result, spi::Backend, url::StoreUrl};

pub use self::{
    backend::{DESCRIPTOR, Sqlite},
    config::Config,
};

/// The URL schemes of this backend.
pub const SCHEMES: &[&str] = &["sqlite"];

/// Adds the schemes of this backend to a registry.
pub fn register(registry: &mut Registry) {
    registry.register(SqliteConnector);
}

struct SqliteConnector;

#[async_trait::async_trait]
impl Connector for SqliteConnector {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    async fn connect(&self, url: StoreUrl, _: &Registry) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Sqlite::open(Config::from_url(url)?).await?))
    }
}
