//! The settings of the backend: the addresses of the servers, and how to use them.

use std::{fmt, time::Duration};

use lockkit_core::{
    Error, ErrorKind, Result,
    url::{Host, StoreUrl},
};
use zookeeper_client::{Acls, Client};

use crate::{
    error,
    path::{Layout, check_prefix},
};

const DEFAULT_PORT: u16 = 2181;
const DEFAULT_PREFIX: &str = "lockkit";
const DEFAULT_SESSION_TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const SESSION_TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(24 * 60 * 60);

/// The request that proves that the session lives.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heartbeat {
    /// A `sync`, which costs no transaction. The leader answers it alone. A leader that has lost
    /// its followers continues to answer for up to `syncLimit` ticks. This is safe only if these
    /// ticks take less than a third of the session timeout. By default they take 10 s.
    Sync,
    /// A write to a node of the session, which a majority must accept. It costs one transaction per
    /// session in each tenth of the session timeout.
    #[default]
    Write,
}

/// The clients that may use the nodes that lockkit makes.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acl {
    /// All clients, as is usual inside a private network.
    #[default]
    Open,
    /// Only clients with the credentials that made the nodes.
    Creator,
}

impl Acl {
    pub(crate) fn acls(self) -> Acls<'static> {
        match self {
            Self::Open => Acls::anyone_all(),
            Self::Creator => Acls::creator_all(),
        }
    }
}

/// The settings of the ZooKeeper backend.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::url::StoreUrl;
/// use lockkit_zk::Config;
///
/// # fn main() -> lockkit_core::Result<()> {
/// let by_hand = Config::new([("10.0.0.6", 2181)])
///     .with_credentials("app", "secret")?
///     .with_session_timeout(Duration::from_secs(6))?;
/// let by_url = Config::from_url(StoreUrl::parse("zk://app:secret@10.0.0.6:2181/?session_timeout=6s")?)?;
/// assert!(!format!("{by_hand:?} {by_url:?}").contains("secret"));
/// # Ok(())
/// # }
/// ```
///
/// # Default
/// A session timeout of 10 s, the root of the tree with the prefix `lockkit`, fair queues,
/// heartbeats by write, open ACLs, no credentials.
#[derive(Clone)]
pub struct Config {
    /// The client of the program, instead of servers.
    client: Option<Client>,
    servers: Vec<(String, u16)>,
    chroot: Option<String>,
    prefix: String,
    credentials: Option<(String, String)>,
    pub(crate) session_timeout: Duration,
    connect_timeout: Option<Duration>,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) acl: Acl,
    pub(crate) fair: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<crate::tls::Tls>,
}

impl Config {
    /// The servers of one ensemble, by host and port.
    #[must_use]
    pub fn new<H: Into<String>>(servers: impl IntoIterator<Item = (H, u16)>) -> Self {
        Self {
            client: None,
            servers: servers.into_iter().map(|(host, port)| (host.into(), port)).collect(),
            chroot: None,
            prefix: DEFAULT_PREFIX.to_owned(),
            credentials: None,
            session_timeout: DEFAULT_SESSION_TIMEOUT,
            connect_timeout: None,
            heartbeat: Heartbeat::default(),
            acl: Acl::default(),
            fair: true,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// A client of the program. lockkit uses its session, and opens none of its own.
    ///
    /// All locks of the locker end with that session. They are lost when it expires, and later
    /// calls fail as [`ErrorKind::Closed`], because lockkit does not replace a session of the
    /// program. `Locker::shutdown` deletes lockkit's nodes one by one, and so does a drop of all
    /// lockers and guards. The session continues. It ends when the program and lockkit have dropped
    /// all clones of the client.
    ///
    /// The client decides chroot, session timeout and credentials, so their setters are refused.
    /// lockkit can't see these facts, which the program must ensure:
    ///
    /// * The paths of the program's own watches have less than 28 KiB, taken together. Above 128
    ///   KiB, the client library loses the session when it reconnects. Each locker uses up to 100
    ///   KiB, about a thousand waiters.
    /// * A reconnect is faster than the lease. The client's connection timeout is at most two ninths
    ///   of the session timeout, divided by the number of servers.
    /// * Large answers to the program's requests delay lockkit's heartbeats, which share the
    ///   connection. If that takes too long, locks are lost.
    /// * The paths of all ephemeral nodes of the session are below the servers' `jute.maxbuffer`.
    ///   Each locker uses up to 512 KiB, about 5,800 locks.
    ///
    /// ```
    /// use lockkit_core::{Locker, Result};
    /// use lockkit_zk::{Config, ZooKeeper, zookeeper_client::Client};
    ///
    /// # async fn connected(client: &Client) -> Result<()> {
    /// let locker = Locker::new(ZooKeeper::connect(Config::from_client(client.clone())).await?);
    /// let guard = locker.mutex("orders/42")?.lock().await?;
    /// guard.release().await?;
    /// locker.shutdown().await
    /// # }
    /// ```
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        let session_timeout = client.session_timeout();
        Self { client: Some(client), session_timeout, ..Self::new::<String>([]) }
    }

    /// Reads a store URL. The crate's documentation lists its parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for a value that makes no sense, [`ErrorKind::UnknownParameter`]
    /// for an unknown parameter, and [`ErrorKind::InvalidOption`] for a combination that cannot
    /// work.
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        if url.hosts().is_empty() {
            return Err(invalid(
                "it names no host; for a server on this machine, write zk://127.0.0.1/",
            ));
        }
        let server = |host: &Host| (host.name.clone(), host.port.unwrap_or(DEFAULT_PORT));
        let mut config = Self::new(url.hosts().iter().map(server));
        config = config.with_chroot(url.path())?;
        match (url.username(), url.password()) {
            (Some(user), Some(password)) => config = config.with_credentials(user, password)?,
            (None, None) => {}
            _ => return Err(invalid("write digest credentials as user:password@")),
        }
        if let Some(prefix) = url.params.text("prefix")? {
            config = config.with_prefix(prefix)?;
        }
        if let Some(timeout) = url.params.duration("session_timeout")? {
            config = config.with_session_timeout(timeout)?;
        }
        if let Some(timeout) = url.params.duration("connect_timeout")? {
            config = config.with_connect_timeout(timeout)?;
        }
        config.heartbeat = match url.params.text("heartbeat")?.as_deref() {
            Some("sync") => Heartbeat::Sync,
            None | Some("write") => Heartbeat::Write,
            Some(_) => return Err(invalid("the parameter heartbeat must be sync or write")),
        };
        config.acl = match url.params.text("acl")?.as_deref() {
            None | Some("open") => Acl::Open,
            Some("creator") => Acl::Creator,
            Some(_) => return Err(invalid("the parameter acl must be open or creator")),
        };
        config.fair = url.params.parsed("fair", "true or false")?.unwrap_or(true);
        #[cfg(feature = "tls")]
        {
            config.tls = crate::tls::Tls::from_url(&mut url)?;
        }
        #[cfg(not(feature = "tls"))]
        if url.scheme() == "zks" {
            let reason = "zks:// needs TLS; build lockkit with the cargo feature zk-tls";
            return Err(error::ours(ErrorKind::MissingFeature, reason));
        }
        url.params.finish()?;
        config.check()?;
        Ok(config)
    }

    /// Sets the node that all paths start from. The node must exist. `/` means the root.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] if it is not a valid path.
    pub fn with_chroot(mut self, chroot: &str) -> Result<Self> {
        let path = chroot.trim_end_matches('/');
        let Some(relative) = path.strip_prefix('/') else {
            if path.is_empty() {
                self.chroot = None;
                return Ok(self);
            }
            return Err(invalid("a chroot must begin with a slash"));
        };
        if relative.contains(',') {
            return Err(invalid(
                "a chroot must not contain a comma, because commas separate servers",
            ));
        }
        check_prefix(relative)
            .map_err(|why| invalid(&format!("could not use the chroot {path:?}: {why}")))?;
        self.chroot = Some(path.to_owned());
        Ok(self)
    }

    /// Sets the folder that contains the locks, such as `lockkit` or `apps/locks`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if it is not a valid path.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        if let Err(why) = check_prefix(&prefix) {
            let reason = format!("could not use the prefix {prefix:?}: {why}");
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.prefix = prefix;
        Ok(self)
    }

    /// Sets the credentials of the digest scheme.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if the user is empty or contains a colon.
    pub fn with_credentials(mut self, user: &str, password: &str) -> Result<Self> {
        if user.is_empty() || user.contains(':') {
            let reason =
                "the user of digest credentials must not be empty and must not contain a colon";
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.credentials = Some((user.to_owned(), password.to_owned()));
        Ok(self)
    }

    /// Sets the time without a sign of life after which the servers free all locks of a process.
    /// The servers have limits of their own and may choose another value. By default the value is
    /// between 2 and 20 of their ticks of 2 s.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if it is not between 100 ms and a day.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Result<Self> {
        if !SESSION_TIMEOUTS.contains(&timeout) {
            let reason =
                format!("session_timeout is {timeout:?}, but it must be between 100 ms and 24 h");
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.session_timeout = timeout;
        Ok(self)
    }

    /// Sets how long one server may take to answer before the client asks the next one. The limit
    /// is two ninths of the session timeout, divided by the number of servers. The default is this
    /// limit, but at most 2 s. A longer search for a connection would outlast the lease.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if it is not between 1 ms and 60 s.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Result<Self> {
        if !(Duration::from_millis(1)..=Duration::from_secs(60)).contains(&timeout) {
            let reason =
                format!("connect_timeout is {timeout:?}, but it must be between 1 ms and 60 s");
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        self.connect_timeout = Some(timeout);
        Ok(self)
    }

    /// Sets the request that proves that the session lives.
    #[must_use]
    pub fn with_heartbeat(mut self, heartbeat: Heartbeat) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// Sets which clients may use the nodes.
    #[must_use]
    pub fn with_acl(mut self, acl: Acl) -> Self {
        self.acl = acl;
        self
    }

    /// Makes mutexes and elections work without a queue: all waiters race for one node at a fixed
    /// path. All users of a prefix must agree on this setting.
    ///
    /// Waiters are served in no particular order. Nothing gets faster: without contention, a lock
    /// costs as many requests as with the queue. Each release wakes all waiters: a grant among 64
    /// processes took about 50 requests instead of 5.
    #[must_use]
    pub fn with_unfair_mutexes(mut self) -> Self {
        self.fair = false;
        self
    }

    /// Checks the settings that the setters cannot check alone.
    pub(crate) fn check(&self) -> Result<()> {
        if let Some(client) = &self.client {
            return self.check_beside(client);
        }
        if self.servers.is_empty() {
            return Err(error::ours(ErrorKind::InvalidOption, "the configuration names no server"));
        }
        if self.servers.iter().any(|(_, port)| *port == 0) {
            return Err(invalid("no server can listen on port 0; name the server's port"));
        }
        if self.acl == Acl::Creator && self.credentials.is_none() {
            let reason = "acl=creator needs credentials, because the nodes need an owner; add \
                          user:password@ to the URL";
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        let most = self.most_connect_timeout();
        match self.connect_timeout {
            Some(timeout) if timeout > most => {
                let reason = format!(
                    "connect_timeout is {timeout:?}, but with a session timeout of {:?} and {} \
                     servers it must be at most {most:?}; otherwise the search for a server can \
                     outlast the lease",
                    self.session_timeout,
                    self.servers.len(),
                );
                Err(error::ours(ErrorKind::InvalidOption, reason))
            }
            _ => Ok(()),
        }
    }

    /// Refuses the settings that a client of the program has decided.
    fn check_beside(&self, client: &Client) -> Result<()> {
        let decided = [
            ("chroot", self.chroot.is_some()),
            ("credentials", self.credentials.is_some()),
            ("session_timeout", self.session_timeout != client.session_timeout()),
            ("connect_timeout", self.connect_timeout.is_some()),
        ];
        let Some((setting, _)) = decided.into_iter().find(|(_, is_set)| *is_set) else {
            return Ok(());
        };
        let reason = format!(
            "the program's client decides {setting}; remove it from the configuration, and set it \
             where the program connects"
        );
        Err(error::ours(ErrorKind::InvalidOption, reason))
    }

    /// Refuses a ttl below the session timeout, because the servers could not keep it.
    pub(crate) fn check_ttl(&self, ttl: Duration, negotiated: Duration) -> Result<()> {
        if ttl >= negotiated {
            return Ok(());
        }
        let reason = format!(
            "ttl is {ttl:?}, but the servers free the locks of a dead process only after the \
             session timeout, which they set to {negotiated:?} (the configuration has \
             session_timeout={:?}); use a ttl of at least that, or a shorter session_timeout",
            self.session_timeout
        );
        Err(error::ours(ErrorKind::InvalidOption, reason))
    }

    fn most_connect_timeout(&self) -> Duration {
        let servers = u32::try_from(self.servers.len()).unwrap_or(u32::MAX).max(1);
        (self.session_timeout * 2 / 9 / servers).max(Duration::from_millis(1))
    }

    /// The time that one server may take to answer.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
            .unwrap_or_else(|| self.most_connect_timeout().min(LONGEST_CONNECT_TIMEOUT))
    }

    /// The client of the program, if lockkit uses that.
    pub(crate) fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    pub(crate) fn servers(&self) -> &[(String, u16)] {
        &self.servers
    }

    pub(crate) fn chroot(&self) -> Option<&str> {
        match &self.client {
            Some(client) => Some(client.path()).filter(|path| *path != "/"),
            None => self.chroot.as_deref(),
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::new(&self.prefix)
    }

    /// `user:password`, in the form of the digest scheme.
    pub(crate) fn digest(&self) -> Option<String> {
        self.credentials.as_ref().map(|(user, password)| format!("{user}:{password}"))
    }

    /// The servers and the chroot, in the form that the client expects.
    pub(crate) fn connect_string(&self) -> String {
        let servers: Vec<_> =
            self.servers.iter().map(|(host, port)| address(host, *port)).collect();
        servers.join(",") + self.chroot.as_deref().unwrap_or("")
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("servers", &self.connect_string())
            .field("prefix", &self.prefix)
            .field("session_timeout", &self.session_timeout)
            .field("connect_timeout", &self.connect_timeout())
            .field("heartbeat", &self.heartbeat)
            .field("acl", &self.acl)
            .field("fair", &self.fair)
            .finish_non_exhaustive()
    }
}

/// The address of a server, with an IPv6 address in brackets.
pub(crate) fn address(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn invalid(reason: &str) -> Error {
    error::ours(ErrorKind::InvalidUrl, format!("the store URL can't be used: {reason}"))
}
