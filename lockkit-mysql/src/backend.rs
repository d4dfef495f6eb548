//! A MySQL or MariaDB database as a store of locks.

use std::{sync::Arc, time::SystemTime};

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, Kind, LockName, Result,
    spi::{
        Admin, Backend, Claim, ClaimSpec, Descriptor, Diagnostic, Inspection, Note, Released, Role,
    },
};

use crate::{
    config::{Config, Strategy},
    diagnosis,
    garbage_collector::GarbageCollector,
    note,
    optimistic::Optimistic,
    pessimistic::Pessimistic,
    pool::Pool,
    schema,
    strategy::Locking,
    time,
};

/// A store of locks in a MySQL or MariaDB database.
///
/// ```
/// use lockkit_core::{Locker, Result};
/// use lockkit_mysql::{Config, MySql};
///
/// # async fn connected() -> Result<()> {
/// let config = Config::new("10.0.0.9", 3306, "shop").with_credentials("app", "secret");
/// let locker = Locker::new(MySql::connect(config).await?);
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// guard.release().await?;
/// locker.shutdown().await
/// # }
/// ```
#[derive(Debug)]
pub struct MySql {
    pool: Arc<Pool>,
    strategy: Arc<dyn Locking>,
    garbage_collector: GarbageCollector,
}

impl MySql {
    /// Connects, checks that the server can be used, and makes the tables if they are missing.
    ///
    /// Each connection belongs to the tokio runtime that opened it. It is closed some time after
    /// that runtime has ended. The pool opens new connections when it needs them.
    ///
    /// # Errors
    /// * [`Unavailable`](lockkit_core::ErrorKind::Unavailable) if nothing answers.
    /// * [`InvalidOption`](lockkit_core::ErrorKind::InvalidOption) for a pool of the program with
    ///   which a promise would be broken: see [`Config::from_pool`].
    /// * [`Closed`](lockkit_core::ErrorKind::Closed) if the program has disconnected that pool.
    /// * [`Authentication`](lockkit_core::ErrorKind::Authentication) or
    ///   [`PermissionDenied`](lockkit_core::ErrorKind::PermissionDenied) if the server refuses the
    ///   user.
    /// * [`ReadOnly`](lockkit_core::ErrorKind::ReadOnly) for a replica.
    /// * [`NewerFormat`](lockkit_core::ErrorKind::NewerFormat) for tables that a newer lockkit has
    ///   made.
    /// * [`WrongType`](lockkit_core::ErrorKind::WrongType) for tables of another form or strategy.
    /// * [`Unsupported`](lockkit_core::ErrorKind::Unsupported) for row locks on a cluster with
    ///   several primaries.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: Config) -> Result<Self> {
        config.check()?;
        let strategy = config.strategy;
        let retention = config.retention;
        let pool = Arc::new(Pool::new(config));
        let mut connection = pool.get(pool.config().connect_timeout).await?;
        schema::prepare(&mut connection, pool.config()).await?;
        drop(connection);
        let strategy: Arc<dyn Locking> = match strategy {
            Strategy::Optimistic => Arc::new(Optimistic::new(Arc::clone(&pool))),
            Strategy::Pessimistic => Arc::new(Pessimistic::new(Arc::clone(&pool))),
        };
        let garbage_collector = GarbageCollector::start(&strategy, retention);
        Ok(Self { pool, strategy, garbage_collector })
    }

    /// Removes the rows of names that were not used for the retention, and returns how many. A
    /// background task does the same from time to time.
    ///
    /// # Errors
    /// Returns the server's error.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call removes the rows that remain.
    pub async fn collect_garbage(&self) -> Result<u64> {
        self.strategy.collect_garbage().await
    }
}

#[async_trait]
impl Backend for MySql {
    fn descriptor(&self) -> &Descriptor {
        self.strategy.descriptor()
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        self.strategy.claim(spec)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.strategy.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.strategy.force_release(name, token).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.garbage_collector.stop().await;
        self.pool.close().await;
        Ok(())
    }
}

#[async_trait]
impl Admin for MySql {
    async fn probe(&self) -> Result<Role> {
        self.pool.probe().await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        self.strategy.names(kind, prefix).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        note::note(&self.pool, name).await
    }

    async fn time(&self) -> Result<SystemTime> {
        time::time(&self.pool).await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        diagnosis::diagnose(&self.pool).await
    }
}
