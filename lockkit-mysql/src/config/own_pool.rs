//! Takes connections out of a pool that belongs to the program.

use lockkit_core::{ErrorKind, Result};
use mysql_async::{self as my, Conn, DEFAULT_STMT_CACHE_SIZE, Opts, Pool, prelude::Queryable as _};

use super::{Address, Config};
use crate::{error, sql::quoted};

impl Config {
    /// A pool of the program, and its database, which has lockkit's tables.
    ///
    /// [`MySql::connect`](crate::MySql::connect) takes all connections that
    /// [`with_pool_size`](Self::with_pool_size) allows out of the pool. lockkit keeps them, so that
    /// its requests do not wait behind the program's queries. Only a connection that breaks is
    /// replaced by another one of the pool, so leave some free. `Locker::shutdown` gives them back,
    /// and so does a drop of all lockers and guards. The pool resets each of them before the
    /// program gets it.
    ///
    /// Shut the locker down before you disconnect the pool. `Pool::disconnect` waits until lockkit
    /// has given its connections back. Use the locker only in the tokio runtime that uses the pool.
    ///
    /// [`MySql::connect`](crate::MySql::connect) refuses a pool that can't keep the promises:
    ///
    /// * Its upper bound must be above the number of connections that lockkit takes.
    /// * Its database must be `database`, because a connection that comes back keeps its database.
    /// * It must reset the connections that come back, as it does by default.
    /// * It must not use `client_found_rows`, and `stmt_cache_size` must be 32 or more, or 0.
    ///
    /// The pool decides user and address, so [`with_credentials`](Self::with_credentials) is
    /// refused.
    ///
    /// ```
    /// use lockkit_core::{Locker, Result};
    /// use lockkit_mysql::{Config, MySql, mysql_async::Pool};
    ///
    /// # async fn connected(pool: &Pool) -> Result<()> {
    /// let config = Config::from_pool(pool.clone(), "shop").with_pool_size(8)?;
    /// let locker = Locker::new(MySql::connect(config).await?);
    /// let guard = locker.mutex("orders/42")?.lock().await?;
    /// guard.release().await?;
    /// locker.shutdown().await
    /// # }
    /// ```
    #[must_use]
    pub fn from_pool(pool: Pool, database: impl Into<String>) -> Self {
        Self::at(Address::Pool(pool), database.into())
    }
}

/// Chooses the database. The program may have chosen another one, and the pool's reset keeps that.
///
/// # Errors
/// The driver's error.
pub(super) async fn choose(conn: &mut Conn, database: &str) -> Result<(), my::Error> {
    conn.query_drop(format!("USE {}", quoted(database))).await
}

/// Checks the options of a pool, which only its connections show.
///
/// # Errors
/// [`ErrorKind::InvalidOption`] for an option with which a promise would be broken.
pub(super) fn check(opts: &Opts, config: &Config) -> Result<()> {
    let most = opts.pool_opts().constraints().max();
    let taken = config.pool_size + config.side_connections();
    let kept = opts.stmt_cache_size();
    let here = config.database();
    let there = opts.db_name().unwrap_or_default();
    let reason = if here != there {
        format!(
            "the program's pool uses the database {there:?}, and lockkit is to use {here:?}; name \
             the pool's database, because a connection keeps its database when it comes back"
        )
    } else if opts.client_found_rows() {
        "the program's pool uses client_found_rows, which changes what the server's answers mean; \
         give lockkit a pool without it"
            .to_owned()
    } else if kept > 0 && kept < DEFAULT_STMT_CACHE_SIZE {
        format!(
            "the program's pool keeps {kept} prepared statements of a connection, but lockkit \
             needs {DEFAULT_STMT_CACHE_SIZE}; raise stmt_cache_size"
        )
    } else if !opts.pool_opts().reset_connection() {
        "the program's pool does not reset its connections, so the program would get the settings \
         of lockkit's sessions; remove with_reset_connection(false)"
            .to_owned()
    } else if most <= taken {
        format!(
            "lockkit takes {taken} connections out of the program's pool, which has at most \
             {most}, and none would be left; raise the pool's upper bound, or lower pool_size"
        )
    } else {
        return Ok(());
    };
    Err(error::ours(ErrorKind::InvalidOption, reason))
}
