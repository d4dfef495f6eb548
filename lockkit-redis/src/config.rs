//! Holds the settings: where the servers are and how to use them.

mod url;

use std::{fmt, path::PathBuf, time::Duration};

use lockkit_core::{Error, ErrorKind, Result};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion,
    RedisConnectionInfo, RedisResult,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};

use crate::keys::Keyspace;
#[cfg(feature = "tls")]
use crate::servers::Tls;

/// The short name of this backend.
pub(crate) const BACKEND: &str = "redis";

/// A server's host and port.
pub(crate) type Address = (String, u16);

const DEFAULT_PREFIX: &str = "lockkit";
const MAX_PREFIX_BYTES: usize = 64;

/// The settings of the Redis backend.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::url::StoreUrl;
/// use lockkit_redis::Config;
///
/// # fn main() -> lockkit_core::Result<()> {
/// let by_hand = Config::new("10.0.0.5", 6379)
///     .with_credentials(Some("app"), "secret")
///     .with_replicas(1, Duration::from_secs(1))?;
/// let by_url = Config::from_url(StoreUrl::parse("redis://app:secret@10.0.0.5/?wait_replicas=1&wait_timeout=1s")?)?;
/// assert!(!format!("{by_hand:?} {by_url:?}").contains("secret"));
/// # Ok(())
/// # }
/// ```
///
/// # Default
/// Database 0, no credentials, prefix `lockkit`, escaped keys, a connect timeout of 2 s, not
/// strict, no waiting for replicas.
#[derive(Clone)]
pub struct Config {
    site: Site,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    database: i64,
    login: Login,
    sentinel_login: Login,
    prefix: String,
    raw_keys: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) strict: bool,
    /// How many replicas must confirm a request, and how long they may take.
    pub(crate) replicas: Option<(u32, Duration)>,
}

/// Which servers there are.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    Tcp(Address),
    Unix(PathBuf),
    /// The server of a client of the program, perhaps with its TLS settings.
    Client(ConnectionAddr),
    Sentinel {
        sentinels: Vec<Address>,
        service: String,
    },
    Cluster(Vec<Address>),
}

/// The user and the password with which lockkit logs in.
#[derive(Clone, Default)]
pub(crate) struct Login {
    username: Option<String>,
    password: Option<String>,
}

impl Config {
    /// A server that listens on TCP.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::at(Site::Tcp((host.into(), port)))
    }

    /// A server that listens on a Unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(Site::Unix(path.into()))
    }

    /// The server of a client of the program, with the client's address, TLS settings, login and
    /// database. [`with_credentials`](Self::with_credentials) and
    /// [`with_database`](Self::with_database) replace these.
    ///
    /// lockkit opens connections of its own with these settings, one for most programs. It does not
    /// use a connection of the program, or a `ConnectionManager`. A manager replaces its connection
    /// without a notice. A release could then overtake an attempt that got no answer, and leave a
    /// lock in the store ([C5](lockkit_core::contract#c5-ambiguity)). So give lockkit the client
    /// that the manager was made from.
    ///
    /// ```
    /// use lockkit_core::{Locker, Result};
    /// use lockkit_redis::{Config, Redis, redis::Client};
    ///
    /// # async fn connected(client: &Client) -> Result<()> {
    /// let locker = Locker::new(Redis::connect(Config::from_client(client)).await?);
    /// let guard = locker.mutex("orders/42")?.lock().await?;
    /// guard.release().await?;
    /// locker.shutdown().await
    /// # }
    /// ```
    #[must_use]
    pub fn from_client(client: &Client) -> Self {
        let info = client.get_connection_info();
        let settings = info.redis_settings();
        let login = Login {
            username: settings.username().map(str::to_owned),
            password: settings.password().map(str::to_owned),
        };
        let site = Site::Client(info.addr().clone());
        Self { database: settings.db(), login, ..Self::at(site) }
    }

    /// The primary of a service, as its sentinels name it. Each sentinel is a host and a port,
    /// usually 26379.
    #[must_use]
    pub fn sentinel<H: Into<String>>(
        sentinels: impl IntoIterator<Item = (H, u16)>,
        service: impl Into<String>,
    ) -> Self {
        Self::at(Site::Sentinel { sentinels: addresses(sentinels), service: service.into() })
    }

    /// A cluster. These nodes name the other ones.
    #[must_use]
    pub fn cluster<H: Into<String>>(nodes: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self::at(Site::Cluster(addresses(nodes)))
    }

    fn at(site: Site) -> Self {
        Self {
            site,
            #[cfg(feature = "tls")]
            tls: None,
            database: 0,
            login: Login::default(),
            sentinel_login: Login::default(),
            prefix: DEFAULT_PREFIX.to_owned(),
            raw_keys: false,
            connect_timeout: Duration::from_secs(2),
            strict: false,
            replicas: None,
        }
    }

    /// Sets the database number.
    #[must_use]
    pub fn with_database(mut self, database: i64) -> Self {
        self.database = database;
        self
    }

    /// Sets the user. `None` means the server's default user.
    #[must_use]
    pub fn with_credentials(mut self, username: Option<&str>, password: &str) -> Self {
        self.login = Login::new(username, password);
        self
    }

    /// Sets the user for the sentinels, which have credentials of their own. `None` means their
    /// default user.
    #[must_use]
    pub fn with_sentinel_credentials(mut self, username: Option<&str>, password: &str) -> Self {
        self.sentinel_login = Login::new(username, password);
        self
    }

    /// Sets the start of every key.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] unless it has 1 to 64 bytes and no braces, blanks or control
    /// characters.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        let bad = |c: char| matches!(c, '{' | '}') || c.is_whitespace() || c.is_control();
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || prefix.contains(bad) {
            let reason = format!(
                "could not use the key prefix {prefix:?}: it must have 1 to {MAX_PREFIX_BYTES} \
                 bytes, and no braces, blanks or control characters"
            );
            return Err(Error::new(ErrorKind::InvalidOption, reason).with_backend(BACKEND));
        }
        self.prefix = prefix;
        Ok(self)
    }

    /// Uses the name of a mutex, as it is, as the lock key. So the mutex can be shared with
    /// programs that lock with `SET name … NX PX`. Helper keys and the other kinds keep the prefix.
    ///
    /// All lockers of a prefix must use the same keys. A locker with other keys is refused when it
    /// connects.
    ///
    /// A mutex name must then not start with `<prefix>:`. Other data in the same database under the
    /// name of a mutex is in the way. The helper keys of a locker with another prefix are such
    /// data, too.
    #[must_use]
    pub fn with_raw_keys(mut self) -> Self {
        self.raw_keys = true;
        self
    }

    /// Sets how long opening a connection may take, and how long lockkit trusts a connection that
    /// does not answer.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if it is not between 1 ms and 60 s.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&timeout) {
            let reason =
                format!("connect_timeout is {timeout:?}, but it must be between 1 ms and 60 s");
            return Err(Error::new(ErrorKind::InvalidOption, reason).with_backend(BACKEND));
        }
        self.connect_timeout = timeout;
        Ok(self)
    }

    /// Refuses a server that may evict keys.
    #[must_use]
    pub fn with_strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Waits until this many replicas have confirmed a grant, a renewal, a raised token or a note,
    /// within `timeout`. Without that confirmation, the request fails. A failover is then unlikely
    /// to lose a lock, but it can: a replica that lacks the lock may still be promoted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if `replicas` is 0, or `timeout` is not between 1 ms and 60 s.
    pub fn with_replicas(mut self, replicas: u32, timeout: Duration) -> Result<Self> {
        if replicas == 0 || !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&timeout)
        {
            let reason = format!(
                "wait_replicas is {replicas}, and wait_timeout is {timeout:?}; wait_replicas must \
                 be at least 1, and wait_timeout between 1 ms and 60 s"
            );
            return Err(Error::new(ErrorKind::InvalidOption, reason).with_backend(BACKEND));
        }
        self.replicas = Some((replicas, timeout));
        Ok(self)
    }

    pub(crate) fn site(&self) -> &Site {
        &self.site
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.site, Site::Cluster(_))
    }

    pub(crate) fn sentinel_login(&self) -> &Login {
        &self.sentinel_login
    }

    /// The start of the clients' channels, where there are no slots.
    pub(crate) fn channels(&self) -> String {
        self.keyspace().channels()
    }

    pub(crate) fn keyspace(&self) -> Keyspace {
        Keyspace { prefix: self.prefix.clone(), raw: self.raw_keys, cluster: self.is_cluster() }
    }

    /// Texts that must never appear in a message.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        let passwords = [&self.login, &self.sentinel_login]
            .into_iter()
            .filter_map(|login| login.password.as_deref());
        passwords.filter(|password| !password.is_empty())
    }

    /// The address of a server of this site.
    pub(crate) fn address_of(&self, host: &str, port: u16) -> ConnectionAddr {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            return tls.address(host, port);
        }
        ConnectionAddr::Tcp(host.to_owned(), port)
    }

    pub(crate) fn connection_info(
        &self,
        address: ConnectionAddr,
        protocol: ProtocolVersion,
    ) -> RedisResult<ConnectionInfo> {
        self.login.info(address, self.database, protocol)
    }
}

impl Login {
    fn new(username: Option<&str>, password: &str) -> Self {
        Self { username: username.map(str::to_owned), password: Some(password.to_owned()) }
    }

    pub(crate) fn info(
        &self,
        address: ConnectionAddr,
        database: i64,
        protocol: ProtocolVersion,
    ) -> RedisResult<ConnectionInfo> {
        let mut login = RedisConnectionInfo::default().set_db(database).set_protocol(protocol);
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15));
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        Ok(address.into_connection_info()?.set_redis_settings(login).set_tcp_settings(tcp))
    }
}

/// The form that messages use.
impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addresses: &[Address]| {
            let texts: Vec<_> =
                addresses.iter().map(|(host, port)| format!("{host}:{port}")).collect();
            texts.join(",")
        };
        match self {
            Self::Tcp((host, port)) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Client(address) => write!(f, "{address}"),
            Self::Sentinel { sentinels, service } => {
                write!(f, "{service} of the sentinels {}", list(sentinels))
            }
            Self::Cluster(nodes) => write!(f, "the cluster of {}", list(nodes)),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("site", &format_args!("{}", self.site))
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .field("raw_keys", &self.raw_keys)
            .field("connect_timeout", &self.connect_timeout)
            .field("strict", &self.strict)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

fn addresses<H: Into<String>>(hosts: impl IntoIterator<Item = (H, u16)>) -> Vec<Address> {
    hosts.into_iter().map(|(host, port)| (host.into(), port)).collect()
}
