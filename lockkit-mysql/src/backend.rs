//! A MySQL or MariaDB database as a store of locks.

use std::{sync::Arc, time::SystemTime};

use async_trait::async_trait;
use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Admin, Backend, Claim, ClaimSpec, Descriptor, Diagnostic, Inspection, Note, Released, Role,
    },
};
use mysql_async::prelude::Queryable;

use crate::{
    config::{Config, Strategy},
    diagnosis, error,
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
    /// The same strategy, if its locks are row locks.
    row_locks: Option<Arc<Pessimistic>>,
    garbage_collector: GarbageCollector,
}

impl MySql {
    /// Connects, checks that the server can be used, and makes the tables if they are missing.
    ///
    /// Each connection belongs to the tokio runtime that opened it. It is closed some time after
    /// that runtime has ended. The pool opens new connections when it needs them.
    ///
    /// # Errors
    /// * [`Unavailable`](lockkit_core::ErrorKind::Unavailable) if nothing answers, or if the
    ///   program uses too many connections of its pool.
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
        if pool.config().is_own_pool() {
            pool.fill().await?;
        }
        let row_locks = (strategy == Strategy::Pessimistic)
            .then(|| Arc::new(Pessimistic::new(Arc::clone(&pool))));
        let strategy: Arc<dyn Locking> = match &row_locks {
            Some(row_locks) => Arc::<Pessimistic>::clone(row_locks),
            None => Arc::new(Optimistic::new(Arc::clone(&pool))),
        };
        let garbage_collector = GarbageCollector::start(&strategy, retention);
        Ok(Self { pool, strategy, row_locks, garbage_collector })
    }

    /// Locks a mutex in a transaction of the program, on the program's own connection, and returns
    /// the fencing token. This is for the pessimistic strategy.
    ///
    /// The lock lasts until the program ends the transaction, by a commit or a rollback. It
    /// excludes all guards of that mutex, and they exclude it. Take it before the first statement
    /// that reads data: with `REPEATABLE READ`, that statement decides which data the transaction
    /// sees.
    ///
    /// The token is stored before this returns, on a connection of lockkit. So each later grant has
    /// a larger one, also after a rollback. A second call for the same name in one transaction
    /// gives another token. A `token_base` is not added.
    ///
    /// lockkit changes no setting of the connection. It uses the savepoint `lockkit_row`, which is
    /// gone when this returns. These promises depend on the program:
    ///
    /// * The wait ends after the connection's `innodb_lock_wait_timeout`. lockkit has no timeout of
    ///   its own for this call. A task that holds a guard of the same mutex waits for itself.
    /// * The lock has no lease, so the program learns of a loss from no deadline
    ///   ([C3](lockkit_core::contract#c3-lease)). The server ends the lock when the connection
    ///   breaks. Then the commit fails, too.
    /// * A program that vanishes without closing its connection keeps the lock
    ///   ([C9](lockkit_core::contract#c9-crash)) for the connection's `wait_timeout`.
    /// * Inspection shows a holder without owner and token, lists of names leave the name out, and
    ///   `force_release` does not end it ([C14](lockkit_core::contract#c14-inspection)).
    ///
    /// ```no_run
    /// use lockkit_mysql::{MySql, mysql_async::{Pool, TxOpts, prelude::Queryable as _}};
    ///
    /// # async fn example(pool: &Pool, store: &MySql) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = pool.start_transaction(TxOpts::default()).await?;
    /// store.lock_in_transaction(&mut transaction, "stock/4711").await?;
    /// transaction.query_drop("UPDATE stock SET pieces = pieces - 1 WHERE item = 4711").await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`ErrorKind::Timeout`] if another client has the lock for too long.
    /// * [`ErrorKind::InvalidOption`] if no transaction is open, if it is `READ ONLY`, or if it is
    ///   on another server than this store.
    /// * [`ErrorKind::Unsupported`] with the optimistic strategy, and with strict leases.
    /// * [`ErrorKind::Lost`] or [`ErrorKind::Unavailable`] if the server has rolled the transaction
    ///   back, and [`ErrorKind::InvalidName`].
    ///
    /// After an error other than `Timeout`, roll the transaction back: it may have locked the row.
    ///
    /// # Cancel safety
    /// Not cancel safe. If the call is dropped before it is done, don't use the connection any
    /// more. lockkit ends it in the background, and with it the transaction, if the store's user
    /// may do that: users may end their own connections. Otherwise the server ends both once the
    /// program has dropped the connection and no statement waits on it.
    pub async fn lock_in_transaction(
        &self,
        transaction: &mut impl Queryable,
        name: &str,
    ) -> Result<FencingToken> {
        let name = LockName::new(Kind::Mutex, name)?;
        let locked = self.lock_in(transaction, &name, true).await.and_then(|token| {
            let reason = "another client had the lock for longer than the connection's \
                          innodb_lock_wait_timeout";
            token.ok_or_else(|| error::ours(ErrorKind::Timeout, reason))
        });
        locked.map_err(|error| explain(error, &name))
    }

    /// As [`lock_in_transaction`](Self::lock_in_transaction), but does not wait. `None` if another
    /// client has the lock.
    ///
    /// # Errors
    /// As for [`lock_in_transaction`](Self::lock_in_transaction).
    ///
    /// # Cancel safety
    /// As for [`lock_in_transaction`](Self::lock_in_transaction).
    pub async fn try_lock_in_transaction(
        &self,
        transaction: &mut impl Queryable,
        name: &str,
    ) -> Result<Option<FencingToken>> {
        let name = LockName::new(Kind::Mutex, name)?;
        let locked = self.lock_in(transaction, &name, false).await;
        locked.map_err(|error| explain(error, &name))
    }

    async fn lock_in(
        &self,
        transaction: &mut impl Queryable,
        name: &LockName,
        waits: bool,
    ) -> Result<Option<FencingToken>> {
        let Some(row_locks) = &self.row_locks else {
            let reason = "strategy=optimistic has leases instead of row locks; use \
                          strategy=pessimistic, with another table_prefix";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        };
        row_locks.lock_in(transaction, name, waits).await
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

fn explain(error: Error, name: &LockName) -> Error {
    error.with_operation("lock in transaction").with_name(name)
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
