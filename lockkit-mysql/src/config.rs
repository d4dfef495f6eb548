//! The settings: where the server is, and how to use it.

mod own_pool;
#[cfg(test)]
mod tests;

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use lockkit_core::{ErrorKind, Result, url::StoreUrl};
use mysql_async::{Conn, Opts, OptsBuilder, Pool};

#[cfg(feature = "tls")]
use crate::tls::Tls;
use crate::{error, tables::Tables};

const DEFAULT_PORT: u16 = 3306;
const DEFAULT_PREFIX: &str = "lockkit";
/// A MySQL table name has at most 64 characters, and our names end in `_holder`.
const MAX_PREFIX_BYTES: usize = 48;
const MAX_POOL: usize = 10_000;
/// A side connection is for `KILL` and for tokens, which must not wait behind held locks. There is
/// one for this many others.
const SIDE_SHARE: usize = 4;
const SIDE_CONNECTIONS: std::ops::RangeInclusive<usize> = 2..=16;
/// With one connection, a waiter would leave none for a lock that is free.
const LEAST_ROW_LOCK_POOL: usize = 2;
/// An idle row may be removed only when no statement is left that was sent while the row was in
/// use.
const LEAST_RETENTION: Duration = Duration::from_secs(60);
const MAX_RETENTION: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
const CONNECT_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(60);
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The largest packet. All statements of lockkit are far smaller.
const PACKET: usize = 16 << 20;

/// How a lock is held in the database. Locks of the two strategies do not exclude each other. So a
/// table prefix records its strategy, and a client with the other strategy is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// A row is a lease. Single statements take it and renew it. A holder and a waiter need no
    /// connection.
    #[default]
    Optimistic,
    /// A row lock (`SELECT … FOR UPDATE`). An open transaction on a connection of its own holds it.
    Pessimistic,
}

impl Strategy {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Optimistic => "optimistic",
            Self::Pessimistic => "pessimistic",
        }
    }
}

impl FromStr for Strategy {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Optimistic, Self::Pessimistic]
            .into_iter()
            .find(|strategy| strategy.as_str() == text)
            .ok_or(())
    }
}

/// The settings of the MySQL backend.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::url::StoreUrl;
/// use lockkit_mysql::Config;
///
/// # fn main() -> lockkit_core::Result<()> {
/// let by_hand = Config::new("10.0.0.9", 3306, "shop")
///     .with_credentials("app", "secret")
///     .with_retention(Duration::from_secs(3600))?;
/// let by_url = Config::from_url(StoreUrl::parse("mysql://app:secret@10.0.0.9/shop?retention=1h")?)?;
/// assert!(!format!("{by_hand:?} {by_url:?}").contains("secret"));
/// # Ok(())
/// # }
/// ```
///
/// # Default
/// The optimistic strategy. Tables that start with `lockkit`, made when missing. At most 16
/// connections, a connect timeout of 2 s, a retention of 24 h, no strict lease.
#[derive(Clone)]
pub struct Config {
    address: Address,
    database: String,
    user: Option<String>,
    password: Option<String>,
    tables: Tables,
    pub(crate) strategy: Strategy,
    pub(crate) create_table: bool,
    pub(crate) pool_size: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) retention: Duration,
    pub(crate) strict_lease: bool,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// Without `Debug`, because that of a pool shows its password.
#[derive(Clone)]
enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
    /// The server of a pool that belongs to the program.
    Pool(Pool),
}

impl Config {
    /// A server that listens on TCP, and the database that has lockkit's tables.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16, database: impl Into<String>) -> Self {
        Self::at(Address::Tcp(host.into(), port), database.into())
    }

    /// A server that listens on a Unix socket, and the database that has lockkit's tables.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>, database: impl Into<String>) -> Self {
        Self::at(Address::Unix(path.into()), database.into())
    }

    fn at(address: Address, database: String) -> Self {
        Self {
            address,
            database,
            user: None,
            password: None,
            tables: Tables::new(DEFAULT_PREFIX),
            strategy: Strategy::default(),
            create_table: true,
            pool_size: 16,
            connect_timeout: Duration::from_secs(2),
            retention: Duration::from_secs(24 * 3600),
            strict_lease: false,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Reads a store URL. The crate's documentation lists its parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for a value that makes no sense, [`ErrorKind::UnknownParameter`]
    /// for an unknown parameter. [`ErrorKind::InvalidOption`] for a value out of its range,
    /// [`ErrorKind::MissingFeature`] for TLS without its feature.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let mut config = if url.scheme() == "mysql+unix" { unix(&mut url)? } else { tcp(&url)? };
        config.user = url.username().map(str::to_owned);
        config.password = url.password().map(str::to_owned);
        config.strategy =
            url.params.parsed("strategy", "optimistic or pessimistic")?.unwrap_or_default();
        if let Some(prefix) = url.params.text("table_prefix")? {
            config = config.with_table_prefix(&prefix)?;
        }
        config.create_table = url.params.parsed("create_table", "true or false")?.unwrap_or(true);
        if let Some(size) = url.params.parsed("pool_size", "a number of connections")? {
            config = config.with_pool_size(size)?;
        }
        if let Some(timeout) = url.params.duration("connect_timeout")? {
            config = config.with_connect_timeout(timeout)?;
        }
        if let Some(retention) = url.params.duration("retention")? {
            config = config.with_retention(retention)?;
        }
        config.strict_lease = url.params.parsed("strict_lease", "true or false")?.unwrap_or(false);
        #[cfg(feature = "tls")]
        {
            config.tls = Tls::from_url(&mut url)?;
        }
        #[cfg(not(feature = "tls"))]
        if url.scheme() == "mysqls" {
            let reason = "mysqls:// needs TLS; build lockkit with the cargo feature mysql-tls";
            return Err(error::ours(ErrorKind::MissingFeature, reason));
        }
        url.params.finish()?;
        config.check()?;
        Ok(config)
    }

    /// Sets the user and the password.
    #[must_use]
    pub fn with_credentials(
        mut self,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.user = Some(user.into());
        self.password = Some(password.into());
        self
    }

    /// Sets the strategy: how locks are held.
    #[must_use]
    pub const fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets the text that the names of the tables start with.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] unless the prefix has 1 to 48 ASCII letters, digits and
    /// underscores.
    pub fn with_table_prefix(mut self, prefix: &str) -> Result<Self> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || !prefix.bytes().all(good) {
            let reason = format!(
                "could not use the table prefix {prefix:?}: it must have 1 to {MAX_PREFIX_BYTES} \
                 ASCII letters, digits and underscores"
            );
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.tables = Tables::new(prefix);
        Ok(self)
    }

    /// Never makes a table. A missing table is an error that shows the statements to run.
    #[must_use]
    pub const fn without_table_creation(mut self) -> Self {
        self.create_table = false;
        self
    }

    /// Sets how many connections there may be at once. For housekeeping there may be a quarter as
    /// many more, but at least 2 and at most 16.
    ///
    /// With the pessimistic strategy, each held lock takes a connection, and so does the first
    /// waiter of each name in this process. When all connections are taken, this process can get no
    /// other lock, even a free one. So that strategy needs at least two: with one, a waiter would
    /// keep every lock from this process. Set as many as there are names that this process holds or
    /// waits for at the same time.
    ///
    /// A connection serves only the tokio runtime that opened it. When that runtime has ended, the
    /// next use of any other connection closes it. When all connections are open and a runtime has
    /// none, the pool closes the connection that was idle for longest. So there should be at least
    /// one connection for each runtime, and at least four with the pessimistic strategy.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if `size` is not between 1 and 10,000.
    /// [`MySql::connect`](crate::MySql::connect) refuses 1 for the pessimistic strategy with the
    /// same error.
    pub fn with_pool_size(mut self, size: usize) -> Result<Self> {
        if !(1..=MAX_POOL).contains(&size) {
            let reason = format!("pool_size is {size}, but it must be between 1 and {MAX_POOL}");
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.pool_size = size;
        Ok(self)
    }

    /// Sets how long opening a connection may take.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if `timeout` is not between 1 ms and 60 s.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        if !CONNECT_TIMEOUTS.contains(&timeout) {
            let reason =
                format!("connect_timeout is {timeout:?}, but it must be between 1 ms and 60 s");
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.connect_timeout = timeout;
        Ok(self)
    }

    /// Sets how long the row of an unused name is kept. The fencing tokens of the name continue to
    /// rise after that, unless the server's clock was set back by more than the retention.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if `retention` is not between a minute and ten years. A shorter
    /// one could remove a row while a statement waits for it.
    pub fn with_retention(mut self, retention: Duration) -> Result<Self> {
        if !(LEAST_RETENTION..=MAX_RETENTION).contains(&retention) {
            let reason = format!(
                "retention is {retention:?}, but it must be between {LEAST_RETENTION:?} and ten \
                 years; otherwise a late statement could find its row deleted, and tokens could \
                 fall"
            );
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.retention = retention;
        Ok(self)
    }

    /// Makes the next holder of a row lock wait for the lease of a holder whose connection died. So
    /// two holders never believe at the same time that they have the lock. This is for the
    /// pessimistic strategy.
    ///
    /// The wait begins when the row lock is free. A holder that hangs, or whose machine vanishes,
    /// keeps the row lock for its lease. So the next holder gets the lock after two leases.
    #[must_use]
    pub const fn with_strict_lease(mut self) -> Self {
        self.strict_lease = true;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.database.is_empty() {
            return Err(invalid("it names no database; write mysql://user:password@host/database"));
        }
        // Without a path, the driver would use its default address.
        if let Address::Unix(path) = &self.address
            && path.to_str().is_none_or(str::is_empty)
        {
            return Err(invalid("the path of the socket must be UTF-8, and not empty"));
        }
        if matches!(self.address, Address::Tcp(_, 0)) {
            return Err(invalid("no server can listen on port 0; name the server's port"));
        }
        if self.is_own_pool() && self.user.is_some() {
            let reason = "the program's pool has a user of its own; remove the credentials from \
                          the configuration";
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        if self.strict_lease && self.strategy == Strategy::Optimistic {
            let reason = "strict_lease applies only to strategy=pessimistic, because leases of \
                          strategy=optimistic are always strict; remove strict_lease";
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        if self.strategy == Strategy::Pessimistic && self.pool_size < LEAST_ROW_LOCK_POOL {
            let reason = format!(
                "pool_size is {}, but with strategy=pessimistic it must be at least \
                 {LEAST_ROW_LOCK_POOL}; each held lock needs a connection, and the first waiter of \
                 each name needs one too, so one waiter would block all other locks of this process",
                self.pool_size
            );
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        Ok(())
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(crate) fn database(&self) -> &str {
        &self.database
    }

    /// How many connections there may be for `KILL` and for tokens.
    pub(crate) fn side_connections(&self) -> usize {
        (self.pool_size / SIDE_SHARE).clamp(*SIDE_CONNECTIONS.start(), *SIDE_CONNECTIONS.end())
    }

    /// Whether all connections come from a pool of the program.
    pub(crate) fn is_own_pool(&self) -> bool {
        matches!(self.address, Address::Pool(_))
    }

    /// The address, as messages show it.
    pub(crate) fn address(&self) -> String {
        match &self.address {
            Address::Tcp(host, port) if host.contains(':') && !host.starts_with('[') => {
                format!("[{host}]:{port}")
            }
            Address::Tcp(host, port) => format!("{host}:{port}"),
            Address::Unix(path) => path.display().to_string(),
            Address::Pool(_) => "the server of the program's pool".to_owned(),
        }
    }

    /// The text that no message may show.
    pub(crate) fn secret(&self) -> Option<&str> {
        self.password.as_deref().filter(|password| !password.is_empty())
    }

    /// Opens a connection of the bare driver, or takes one out of the program's pool.
    ///
    /// # Errors
    /// The driver's error, or [`ErrorKind::InvalidOption`] for a pool that can't keep a promise.
    pub(crate) async fn open(&self) -> Result<Conn> {
        let failed = |error| {
            let what = format!("connecting to {}", self.address());
            error::opening(error, &what, self.secret())
        };
        let Address::Pool(pool) = &self.address else {
            return Conn::new(self.opts()).await.map_err(failed);
        };
        let mut conn = pool.get_conn().await.map_err(failed)?;
        own_pool::check(conn.opts(), self)?;
        own_pool::choose(&mut conn, &self.database).await.map_err(failed)?;
        Ok(conn)
    }

    /// The driver's options for a connection that lockkit opens.
    fn opts(&self) -> Opts {
        let builder = OptsBuilder::default()
            .user(self.user.as_deref())
            .pass(self.password.as_deref())
            .db_name(Some(&self.database))
            // By default, the driver silently moves from the given address to the server's own
            // socket.
            .prefer_socket(false)
            .tcp_keepalive(Some(KEEPALIVE))
            // Set here, so that the driver does not ask for them in one more round trip.
            .max_allowed_packet(Some(PACKET))
            .wait_timeout(Some(0));
        #[cfg(feature = "tls")]
        let builder = builder.ssl_opts(self.tls.as_ref().map(Tls::options));
        match &self.address {
            Address::Tcp(host, port) => {
                builder.ip_or_hostname(host.as_str()).tcp_port(*port).into()
            }
            Address::Unix(path) => builder.socket(path.to_str()).into(),
            // The pool opens its connections with its own options.
            Address::Pool(_) => builder.into(),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &self.address())
            .field("database", &self.database)
            .field("strategy", &self.strategy)
            .field("table_prefix", &self.tables.prefix())
            .field("create_table", &self.create_table)
            .field("pool_size", &self.pool_size)
            .field("connect_timeout", &self.connect_timeout)
            .field("retention", &self.retention)
            .field("strict_lease", &self.strict_lease)
            .finish_non_exhaustive()
    }
}

fn tcp(url: &StoreUrl) -> Result<Config> {
    let host = match url.hosts() {
        [host] => host,
        [] => {
            return Err(invalid(
                "it names no host; for a server on this machine, write \
                 mysql://user@127.0.0.1/database",
            ));
        }
        _ => {
            let reason = "the store URL can't be used: it names more than one server; name the primary, or a proxy \
                          that leads to it";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
    };
    let database = url.path().strip_prefix('/').unwrap_or(url.path());
    if database.contains('/') {
        return Err(invalid("its path must be the name of one database"));
    }
    Ok(Config::new(&*host.name, host.port.unwrap_or(DEFAULT_PORT), database))
}

fn unix(url: &mut StoreUrl) -> Result<Config> {
    if !url.hosts().is_empty() || url.path().len() < 2 {
        return Err(invalid("write a socket as mysql+unix:///path/to/socket?db=database"));
    }
    let database = url.params.text("db")?.unwrap_or_default();
    Ok(Config::unix(url.path(), database))
}

fn invalid(reason: &str) -> lockkit_core::Error {
    error::ours(ErrorKind::InvalidUrl, format!("the store URL can't be used: {reason}"))
}
