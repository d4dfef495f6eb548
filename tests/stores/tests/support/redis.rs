//! Redis under test: a server of our own, or the one that `LOCKKIT_TEST_REDIS_URL` names; and Valkey.

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Link, Store, proxy::Proxy};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
    url::StoreUrl,
};
use lockkit_fixture::{RedisServer, TestRedis, redis_from_env_or_start};
use lockkit_redis::{
    Config, Redis,
    redis::{self, AsyncCommands as _, aio::MultiplexedConnection},
};

const FOREIGN: &str = "another program";
/// Of the server's memory.
const NO_LIMIT: &str = "0";

/// One server. Each case works under a random prefix of its own.
#[derive(Debug)]
pub(crate) struct RedisStore {
    name: &'static str,
    address: Address,
    server: Option<Arc<Mutex<RedisServer>>>,
    descriptor: Descriptor,
}

impl RedisStore {
    /// Starts the server, or finds it, and asks it what it can do.
    pub(crate) fn start() -> Result<Self, BoxError> {
        let TestRedis { url, server } = redis_from_env_or_start()?;
        Self::on("redis", &url, server)
    }

    /// Starts a Valkey, if there is one.
    pub(crate) fn start_valkey() -> Result<Option<Self>, BoxError> {
        let server = RedisServer::start_valkey()?;
        server.map(|server| Self::on("valkey", &server.url(), Some(server))).transpose()
    }

    fn on(name: &'static str, url: &str, server: Option<RedisServer>) -> Result<Self, BoxError> {
        let address = Address::parse(url)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let backend = runtime.block_on(address.connect(address.host, "lockkit-probe"))?;
        let descriptor = backend.descriptor().clone();
        Ok(Self { name, address, server: server.map(|server| Arc::new(Mutex::new(server))), descriptor })
    }

    /// Whether it may be stopped and restarted.
    pub(crate) fn is_ours(&self) -> bool {
        self.server.is_some()
    }
}

#[async_trait]
impl Store for RedisStore {
    fn name(&self) -> &str {
        self.name
    }

    fn descriptor(&self) -> Descriptor {
        self.descriptor.clone()
    }

    fn is_twin(&self) -> bool {
        self.name == "valkey"
    }

    fn hooks(&self) -> Vec<Hook> {
        let mut hooks = vec![Hook::ClockBack, Hook::Flush, Hook::Foreign, Hook::Wire];
        if self.is_ours() {
            hooks.extend([Hook::Fill, Hook::Pause, Hook::Restart]);
        }
        hooks
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let prefix = format!("lockkit-test-{:016x}", rand::random::<u64>());
        let (address, server) = (self.address.clone(), self.server.clone());
        Ok(Box::new(RedisHarness {
            address,
            prefix,
            server,
            paused: Mutex::default(),
            filled: AtomicBool::default(),
            proxies: Mutex::default(),
        }))
    }
}

#[derive(Debug)]
struct RedisHarness {
    address: Address,
    prefix: String,
    server: Option<Arc<Mutex<RedisServer>>>,
    paused: Mutex<bool>,
    filled: AtomicBool,
    /// Kept to the end: what a case leaves behind is cleaned up through them.
    proxies: Mutex<Vec<Arc<Proxy>>>,
}

impl RedisHarness {
    /// A connection that nothing else shares, as the server may have been restarted since the last one.
    async fn admin(&self) -> Result<MultiplexedConnection, BoxError> {
        let client = redis::Client::open(self.address.url(self.address.host))?;
        Ok(client.get_multiplexed_async_connection().await?)
    }

    /// The public format: other programs lock by it.
    fn lock_key(&self, name: &LockName) -> String {
        let text = name.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        format!("{}:{}:{{{text}}}", self.prefix, name.kind())
    }

    async fn keys(&self) -> Result<Vec<String>, BoxError> {
        let mut admin = self.admin().await?;
        let mut found = admin.scan_match(format!("{}:*", self.prefix)).await?;
        let mut keys = Vec::new();
        while let Some(key) = found.next_item().await {
            keys.push(key?);
        }
        Ok(keys)
    }

    fn server(&self) -> Result<MutexGuard<'_, RedisServer>, BoxError> {
        let server = self.server.as_ref().ok_or("the server is not ours to stop")?;
        Ok(server.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn limit_memory(&self, most: &str) -> Result<(), BoxError> {
        self.server()?.ask(["CONFIG", "SET", "maxmemory", most])?;
        self.filled.store(most != NO_LIMIT, Ordering::Relaxed);
        Ok(())
    }

    fn set_paused(&self, pause: bool) -> Result<(), BoxError> {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if *paused != pause {
            let server = self.server()?;
            if pause {
                server.pause()?
            } else {
                server.resume()?
            }
            *paused = pause;
        }
        Ok(())
    }
}

#[async_trait]
impl Harness for RedisHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.address.connect(self.address.host, &self.prefix).await?))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let proxy = Arc::new(Proxy::start(self.address.host).await?);
        self.proxies.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&proxy));
        let backend = self.address.connect(proxy.addr(), &self.prefix).await?;
        Ok((Arc::new(backend), proxy))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        let base = self.lock_key(name);
        let keys = [[&base, ":grants"].concat(), [&base, ":holders"].concat(), base];
        Ok(self.admin().await?.del(&keys).await?)
    }

    async fn set_clock_back(&self, name: &LockName, by: Duration) -> Result<(), BoxError> {
        let (mut admin, key) = (self.admin().await?, self.lock_key(name));
        let left: i64 = admin.pttl(&key).await?;
        Ok(admin.pexpire(&key, left + i64::try_from(by.as_millis())?).await?)
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let mut admin = self.admin().await?;
        let mut leaks = Vec::new();
        for key in self.keys().await? {
            let lives: i64 = admin.pttl(&key).await?;
            // What stays of a name that nobody uses: the last token for a while, and the note. And of the prefix.
            let stays = lives == -2 || (key.ends_with("}:note") && lives == -1) || key.ends_with(":keys");
            if !stays && (!key.ends_with("}:fence") || lives < 0) {
                leaks.push(format!("the key {key:?}, which lives for {lives} ms"));
            }
        }
        let channels: Vec<String> = redis::cmd("PUBSUB")
            .arg("CHANNELS")
            .arg(format!("{}:*", self.prefix))
            .query_async(&mut admin)
            .await?;
        let waits = |channel: &String| !channel.starts_with(&format!("{}:wake:", self.prefix));
        leaks.extend(
            channels.into_iter().filter(waits).map(|channel| format!("a subscription to {channel:?}")),
        );
        Ok(leaks)
    }

    async fn close(&self) {
        self.proxies.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    async fn flush(&self) -> Result<(), BoxError> {
        // Not FLUSHALL: the server may be shared.
        let keys = self.keys().await?;
        if !keys.is_empty() {
            self.admin().await?.del::<_, ()>(keys).await?;
        }
        Ok(())
    }

    async fn foreign_lock(&self, name: &LockName, ttl: Duration) -> Result<(), BoxError> {
        let mut set = redis::cmd("SET");
        set.arg(self.lock_key(name)).arg(FOREIGN).arg("NX").arg("PX").arg(u64::try_from(ttl.as_millis())?);
        let set: Option<String> = set.query_async(&mut self.admin().await?).await?;
        set.map(drop).ok_or_else(|| "the lock is not free".into())
    }

    async fn foreign_unlock(&self, name: &LockName) -> Result<bool, BoxError> {
        let (mut admin, key) = (self.admin().await?, self.lock_key(name));
        let owner: Option<String> = admin.get(&key).await?;
        Ok(owner.as_deref() == Some(FOREIGN) && admin.del::<_, u64>(&key).await? == 1)
    }

    async fn pause(&self) -> Result<(), BoxError> {
        self.set_paused(true)
    }

    async fn resume(&self) -> Result<(), BoxError> {
        self.set_paused(false)
    }

    async fn fill(&self) -> Result<(), BoxError> {
        self.limit_memory("1mb")
    }

    async fn make_room(&self) -> Result<(), BoxError> {
        self.limit_memory(NO_LIMIT)
    }

    async fn restart(&self) -> Result<(), BoxError> {
        Ok(self.server()?.restart()?)
    }
}

impl Drop for RedisHarness {
    fn drop(&mut self) {
        // A case that failed must not take the next ones with it.
        self.set_paused(false).expect("the server goes on");
        if self.filled.load(Ordering::Relaxed) {
            self.limit_memory(NO_LIMIT).expect("the server has room");
        }
    }
}

/// The parts of a `redis://` URL.
#[derive(Clone, Debug)]
struct Address {
    /// With its `@`.
    login: String,
    host: SocketAddr,
    /// With its `/`.
    database: String,
}

impl Address {
    fn parse(url: &str) -> Result<Self, BoxError> {
        let rest = url.strip_prefix("redis://").ok_or("the URL must start with redis://")?;
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host) = authority.rsplit_once('@').map_or(("", authority), |(login, host)| (login, host));
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:6379") };
        let host = host.to_socket_addrs()?.next().ok_or("the host has no address")?;
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        Ok(Self { login, host, database: format!("/{database}") })
    }

    fn url(&self, host: SocketAddr) -> String {
        let Self { login, database, .. } = self;
        format!("redis://{login}{host}{database}")
    }

    async fn connect(&self, host: SocketAddr, prefix: &str) -> Result<Redis, BoxError> {
        let url = format!("{}?prefix={prefix}", self.url(host));
        Ok(Redis::connect(Config::from_url(StoreUrl::parse(&url)?)?).await?)
    }
}
