//! Where the server is and how to use it.

use std::{fmt, path::PathBuf, time::Duration};

use lockkit_core::{Error, ErrorKind, Result, url::StoreUrl};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion, RedisConnectionInfo,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};

use crate::{error, keys::Keyspace};

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_PREFIX: &str = "lockkit";
const MAX_PREFIX_BYTES: usize = 64;

/// The settings of the Redis backend.
///
/// # Default
/// Database 0, no credentials, prefix `lockkit`, escaped keys, a connect timeout of 2 s, not strict.
#[derive(Clone)]
pub struct Config {
    address: ConnectionAddr,
    database: i64,
    username: Option<String>,
    password: Option<String>,
    prefix: String,
    raw_keys: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) strict: bool,
}

impl Config {
    /// A server that listens on TCP.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::at(ConnectionAddr::Tcp(host.into(), port))
    }

    /// A server that listens on a Unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::at(ConnectionAddr::Unix(path.into()))
    }

    fn at(address: ConnectionAddr) -> Self {
        Self {
            address,
            database: 0,
            username: None,
            password: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            raw_keys: false,
            connect_timeout: Duration::from_secs(2),
            strict: false,
        }
    }

    /// Reads a store URL; the crate's documentation lists its parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for a value that makes no sense, [`ErrorKind::UnknownParameter`] for a parameter
    /// that nobody knows, [`ErrorKind::Unsupported`] for TLS and for more than one server.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        if url.scheme() == "rediss" {
            return Err(unsupported(
                "TLS (rediss://) is not supported yet; use redis:// inside a private network",
            ));
        }
        let mut config = if url.scheme() == "redis+unix" {
            let database: Option<u16> = url.params.parsed("db", "a database number")?;
            Self { database: database.unwrap_or(0).into(), ..Self::unix(unix_path(&url)?) }
        } else {
            Self { database: database(url.path())?, ..tcp(&url)? }
        };
        config.username = url.username().map(str::to_owned);
        config.password = url.password().map(str::to_owned);
        if config.username.is_some() && config.password.is_none() {
            return Err(invalid(
                "it has a user name and no password; a password alone is written :password@",
            ));
        }
        if let Some(prefix) = url.params.text("prefix")? {
            config = config.with_prefix(prefix)?;
        }
        config.raw_keys = match url.params.text("key")?.as_deref() {
            None | Some("escaped") => false,
            Some("raw") => true,
            Some(_) => return Err(invalid("the parameter key must be raw or escaped")),
        };
        if let Some(timeout) = url.params.duration("connect_timeout")? {
            config = config.with_connect_timeout(timeout)?;
        }
        config.strict = url.params.parsed("strict", "true or false")?.unwrap_or(false);
        url.params.finish()?;
        Ok(config)
    }

    /// Sets the database number.
    #[must_use]
    pub fn with_database(mut self, database: i64) -> Self {
        self.database = database;
        self
    }

    /// Sets the user; `None` for the server's default user.
    #[must_use]
    pub fn with_credentials(mut self, username: Option<&str>, password: &str) -> Self {
        self.username = username.map(str::to_owned);
        self.password = Some(password.to_owned());
        self
    }

    /// Sets what every key starts with.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] unless it has 1 to 64 bytes and no braces, blanks or control characters.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        let bad = |c: char| matches!(c, '{' | '}') || c.is_whitespace() || c.is_control();
        if prefix.is_empty() || prefix.len() > MAX_PREFIX_BYTES || prefix.contains(bad) {
            let reason = format!(
                "the key prefix {prefix:?} can't be used: it must have 1 to {MAX_PREFIX_BYTES} bytes, and no \
                 braces, blanks or control characters"
            );
            return Err(Error::new(ErrorKind::InvalidOption, reason).with_backend(error::BACKEND));
        }
        self.prefix = prefix;
        Ok(self)
    }

    /// Uses the name of a mutex as its lock key, as it is, to share it with programs that lock with
    /// `SET name … NX PX`. Helper keys and the other kinds keep the prefix.
    ///
    /// A mutex name must then not start with `<prefix>:`. Whatever else is kept in the same database under such a
    /// name is in the way, the helper keys of a locker with another prefix included.
    #[must_use]
    pub fn with_raw_keys(mut self) -> Self {
        self.raw_keys = true;
        self
    }

    /// Sets how long opening a connection may take, and how long one that does not answer is trusted.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if it is not between 1 ms and 60 s.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&timeout) {
            let reason = format!("connect_timeout is {timeout:?}, it must be between 1 ms and 60 s");
            return Err(Error::new(ErrorKind::InvalidOption, reason).with_backend(error::BACKEND));
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

    pub(crate) fn keyspace(&self) -> Keyspace {
        Keyspace { prefix: self.prefix.clone(), raw: self.raw_keys }
    }

    /// The address, for messages.
    pub(crate) fn address(&self) -> &ConnectionAddr {
        &self.address
    }

    /// What must never be seen in a message.
    pub(crate) fn secret(&self) -> Option<&str> {
        self.password.as_deref().filter(|password| !password.is_empty())
    }

    pub(crate) fn connection_info(&self, protocol: ProtocolVersion) -> redis::RedisResult<ConnectionInfo> {
        let mut login = RedisConnectionInfo::default().set_db(self.database).set_protocol(protocol);
        if let Some(username) = &self.username {
            login = login.set_username(username);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(15));
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        Ok(self.address.clone().into_connection_info()?.set_redis_settings(login).set_tcp_settings(tcp))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, database, prefix, raw_keys, connect_timeout, strict, username: _, password: _ } =
            self;
        f.debug_struct("Config")
            .field("address", &address.to_string())
            .field("database", database)
            .field("prefix", prefix)
            .field("raw_keys", raw_keys)
            .field("connect_timeout", connect_timeout)
            .field("strict", strict)
            .finish_non_exhaustive()
    }
}

fn tcp(url: &StoreUrl) -> Result<Config> {
    match url.hosts() {
        [] => Err(invalid("it names no host; a server on this machine is redis://127.0.0.1/")),
        [host] => Ok(Config::new(&*host.name, host.port.unwrap_or(DEFAULT_PORT))),
        _ => Err(unsupported("it names more than one server; Sentinel and Cluster are not supported yet")),
    }
}

fn unix_path(url: &StoreUrl) -> Result<&str> {
    if !url.hosts().is_empty() || url.path().len() < 2 {
        return Err(invalid("a socket is written redis+unix:///path/to/socket"));
    }
    Ok(url.path())
}

fn database(path: &str) -> Result<i64> {
    let number = path.strip_prefix('/').unwrap_or(path);
    if number.is_empty() {
        return Ok(0);
    }
    let number =
        number.parse::<u16>().map_err(|_| invalid("its path must be a database number, such as /0"))?;
    Ok(number.into())
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidUrl, format!("the store URL can't be used: {reason}"))
        .with_backend(error::BACKEND)
}

fn unsupported(reason: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the store URL can't be used: {reason}"))
        .with_backend(error::BACKEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(text).unwrap())
    }

    #[test]
    fn all_parts_of_a_url_are_used() {
        let config =
            parse("redis://us:p%40ss@h:7/3?prefix=a:b&key=raw&connect_timeout=250ms&strict=true").unwrap();
        assert_eq!(config.address, ConnectionAddr::Tcp("h".to_owned(), 7));
        assert_eq!((config.database, config.prefix.as_str(), config.raw_keys), (3, "a:b", true));
        assert_eq!((config.connect_timeout, config.strict), (Duration::from_millis(250), true));
        let info = config.connection_info(ProtocolVersion::RESP3).unwrap();
        let login = info.redis_settings();
        assert_eq!((login.username(), login.password()), (Some("us"), Some("p@ss")));
        assert!(info.tcp_settings().nodelay());
    }

    #[test]
    fn a_bare_url_means_the_usual_server() {
        for url in ["redis://127.0.0.1", "redis://127.0.0.1:6379/"] {
            let config = parse(url).unwrap();
            assert_eq!(config.address, ConnectionAddr::Tcp("127.0.0.1".to_owned(), 6379));
            assert_eq!((config.database, config.prefix.as_str()), (0, "lockkit"));
        }
        let config = parse("redis+unix:///run/redis.sock?db=2").unwrap();
        assert_eq!((config.address, config.database), (ConnectionAddr::Unix("/run/redis.sock".into()), 2));
    }

    #[test]
    fn c13_what_makes_no_sense_is_refused_with_a_reason() {
        for (url, kind, reason) in [
            ("redis://", ErrorKind::InvalidUrl, "no host"),
            ("redis://h/x", ErrorKind::InvalidUrl, "path must be a database number"),
            ("redis://h/-1", ErrorKind::InvalidUrl, "path must be a database number"),
            ("redis://user@h/", ErrorKind::InvalidUrl, "no password"),
            ("redis://a,b/", ErrorKind::Unsupported, "more than one server"),
            ("rediss://h/", ErrorKind::Unsupported, "TLS"),
            ("redis+unix://h/x", ErrorKind::InvalidUrl, "redis+unix:///path"),
            ("redis://h/?prefix=", ErrorKind::InvalidOption, "key prefix"),
            ("redis://h/?prefix=a%7Bb", ErrorKind::InvalidOption, "key prefix"),
            ("redis://h/?prefix=a%20b", ErrorKind::InvalidOption, "key prefix"),
            ("redis://h/?key=cooked", ErrorKind::InvalidUrl, "raw or escaped"),
            ("redis://h/?connect_timeout=0s", ErrorKind::InvalidOption, "between 1 ms and 60 s"),
            ("redis://h/?connect_timeout=61s", ErrorKind::InvalidOption, "between 1 ms and 60 s"),
            ("redis+unix:///s?db=-1", ErrorKind::InvalidUrl, "a database number"),
            ("redis://h/?connect_timeout=fast", ErrorKind::InvalidUrl, "connect_timeout"),
            ("redis://h/?strict=1", ErrorKind::InvalidUrl, "true or false"),
            ("redis://h/?tll=3s", ErrorKind::UnknownParameter, "tll"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn c13_debug_shows_no_secret() {
        let config = parse("redis://user:hunter2@h/").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
