//! Redis under test: a server of this test, or the one that `LOCKKIT_TEST_REDIS_URL` names. Also
//! Valkey, the primary that sentinels name, and a cluster of three masters.

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Link, Store, faulty::Faulty};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
    url::StoreUrl,
};
use lockkit_fixture::{
    RedisCluster, RedisClusterOptions, RedisServer, SentinelGroup, SentinelOptions, ServerProcess,
    TestRedis, redis_from_env_or_start,
};
use lockkit_redis::{
    Config, Redis,
    redis::{
        self, AsyncCommands as _, AsyncConnectionConfig, Cmd, FromRedisValue, ServerErrorKind,
        aio::MultiplexedConnection,
    },
};

use crate::shared::{Address, Proxies, Servers, Shared};

const FOREIGN: &str = "another program";
/// The value for a server's memory without a limit.
const NO_LIMIT: &str = "0";
/// The sentinels must not replace a server that a case stops.
const NEVER: Duration = Duration::from_secs(3600);
const SETTLED: Duration = Duration::from_secs(30);
const PORT: u16 = 6379;

/// One server or several. Each case works under its own random prefix.
#[derive(Debug)]
pub(crate) struct RedisStore {
    name: &'static str,
    place: Place,
    descriptor: Descriptor,
}

/// The addresses of the servers.
#[derive(Clone, Debug)]
struct Place {
    url: String,
    /// The address of a single server. Several servers send clients their addresses themselves, and
    /// no proxy stays in between. So there is no [`Hook::Wire`] then, and faults happen between
    /// core and backend.
    alone: Option<Address>,
    servers: Shared<Topology>,
}

#[derive(Debug)]
enum Topology {
    Alone(Box<RedisServer>),
    Sentinel(SentinelGroup),
    Cluster(RedisCluster),
}

impl RedisStore {
    /// Starts the server, or finds it, and reads its abilities.
    pub(crate) fn start() -> Result<Self, BoxError> {
        let TestRedis { url, server } = redis_from_env_or_start()?;
        Self::alone("redis", &url, server)
    }

    /// Starts a Valkey server, if it is installed.
    pub(crate) fn start_valkey() -> Result<Option<Self>, BoxError> {
        let server = RedisServer::start_valkey()?;
        server.map(|server| Self::alone("valkey", &server.url(), Some(server))).transpose()
    }

    /// Starts the servers of each topology, and reads its abilities.
    pub(crate) fn start_topologies() -> Result<[Self; 2], BoxError> {
        let group = SentinelGroup::start_with(SentinelOptions::default().with_down_after(NEVER))?;
        let cluster =
            RedisCluster::start_with(RedisClusterOptions::default().with_node_timeout(SETTLED))?;
        let at_sentinels = group.url();
        let at_nodes = cluster.url();
        Ok([
            Self::on("redis-sentinel", at_sentinels, None, Some(Topology::Sentinel(group)))?,
            Self::on("redis-cluster", at_nodes, None, Some(Topology::Cluster(cluster)))?,
        ])
    }

    fn alone(name: &'static str, url: &str, server: Option<RedisServer>) -> Result<Self, BoxError> {
        let address = Address::parse(url, PORT)?;
        Self::on(
            name,
            address.url(),
            Some(address),
            server.map(|server| Topology::Alone(Box::new(server))),
        )
    }

    fn on(
        name: &'static str,
        url: String,
        alone: Option<Address>,
        servers: Option<Topology>,
    ) -> Result<Self, BoxError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let descriptor = runtime.block_on(connect(&url, "lockkit-probe"))?.descriptor().clone();
        Ok(Self { name, place: Place { url, alone, servers: Shared::new(servers) }, descriptor })
    }

    /// Whether the servers may be stopped and restarted.
    pub(crate) fn is_ours(&self) -> bool {
        self.place.servers.are_ours()
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
        // A cluster differs only in the server that a request goes to, for all kinds of locks.
        self.name != "redis"
    }

    fn hooks(&self) -> Vec<Hook> {
        let mut hooks = vec![Hook::Flush, Hook::Foreign];
        let is_alone = self.place.alone.is_some();
        if is_alone {
            hooks.extend([Hook::ClockBack, Hook::Wire]);
        }
        if self.is_ours() {
            hooks.extend([Hook::Pause, Hook::Restart]);
        }
        if is_alone && self.is_ours() {
            hooks.push(Hook::Fill);
        }
        hooks
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(RedisHarness {
            place: self.place.clone(),
            prefix: format!("lockkit-test-{:016x}", rand::random::<u64>()),
            filled: AtomicBool::default(),
            proxies: Proxies::default(),
        }))
    }
}

impl Servers for Topology {
    fn processes(&self) -> Vec<&ServerProcess> {
        self.primaries().iter().map(|server| &**server).collect()
    }
}

impl Topology {
    /// The servers that take writes.
    fn primaries(&self) -> &[RedisServer] {
        match self {
            Self::Alone(server) => slice::from_ref(server.as_ref()),
            Self::Sentinel(group) => &group.servers()[..1],
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    fn restart(&mut self) -> Result<(), BoxError> {
        match self {
            Self::Alone(server) => server.restart()?,
            Self::Sentinel(group) => group.server_mut(0).restart()?,
            Self::Cluster(cluster) => {
                for index in 0..cluster.nodes().len() {
                    cluster.node_mut(index).restart()?;
                }
                cluster.wait_settled(SETTLED)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct RedisHarness {
    place: Place,
    prefix: String,
    filled: AtomicBool,
    proxies: Proxies,
}

impl RedisHarness {
    /// A connection to each server that takes writes. These connections are always new, because a
    /// server may have been restarted since the last ones were made.
    async fn admins(&self) -> Result<Vec<MultiplexedConnection>, BoxError> {
        let servers = &self.place.servers;
        let urls: Vec<_> = if servers.are_ours() {
            servers.lock()?.primaries().iter().map(RedisServer::url).collect()
        } else {
            vec![self.place.url.clone()]
        };
        let patient = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SETTLED))
            .set_response_timeout(Some(SETTLED));
        let mut admins = Vec::new();
        for url in urls {
            let client = redis::Client::open(url)?;
            admins.push(client.get_multiplexed_async_connection_with_config(&patient).await?);
        }
        Ok(admins)
    }

    /// The answer of the server that has the keys.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, BoxError> {
        for mut admin in self.admins().await? {
            match command.query_async(&mut admin).await {
                Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::Moved) => {}
                answer => return Ok(answer?),
            }
        }
        Err("no server has the slot".into())
    }

    /// The key of a lock in the public format, which other programs use.
    fn lock_key(&self, name: &LockName) -> String {
        let text = name.as_str().replace('%', "%25").replace('{', "%7B").replace('}', "%7D");
        format!("{}:{}:{{{text}}}", self.prefix, name.kind())
    }

    async fn keys(&self, admin: &mut MultiplexedConnection) -> Result<Vec<String>, BoxError> {
        let mut found = admin.scan_match(format!("{}:*", self.prefix)).await?;
        let mut keys = Vec::new();
        while let Some(key) = found.next_item().await {
            keys.push(key?);
        }
        Ok(keys)
    }

    fn limit_memory(&self, most: &str) -> Result<(), BoxError> {
        for server in self.place.servers.lock()?.primaries() {
            server.ask(["CONFIG", "SET", "maxmemory", most])?;
        }
        self.filled.store(most != NO_LIMIT, Ordering::Relaxed);
        Ok(())
    }
}

#[async_trait]
impl Harness for RedisHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(connect(&self.place.url, &self.prefix).await?))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let Some(address) = &self.place.alone else {
            let faulty = Faulty::new(self.connect().await?);
            let line = faulty.line();
            return Ok((Arc::new(faulty), line));
        };
        let proxy = self.proxies.start(address.host).await?;
        let backend = connect(&address.url_through(proxy.addr()), &self.prefix).await?;
        Ok((Arc::new(backend), proxy))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        let base = self.lock_key(name);
        let keys = [[&base, ":grants"].concat(), [&base, ":holders"].concat(), base];
        self.ask(&Cmd::del(&keys)).await
    }

    async fn set_clock_back(&self, name: &LockName, by: Duration) -> Result<(), BoxError> {
        let key = self.lock_key(name);
        let left: i64 = self.ask(&Cmd::pttl(&key)).await?;
        self.ask(&Cmd::pexpire(&key, left + i64::try_from(by.as_millis())?)).await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let mut leaks = Vec::new();
        let kinds_of_channels: &[_] = match self.place.alone {
            Some(_) => &["CHANNELS"],
            None => &["CHANNELS", "SHARDCHANNELS"],
        };
        for mut admin in self.admins().await? {
            for key in self.keys(&mut admin).await? {
                let lives: i64 = admin.pttl(&key).await?;
                // These keys remain: notes, and the data that all lockers of the prefix share.
                let stays = lives == -2
                    || (key.ends_with("}:note") && lives == -1)
                    || key.ends_with(":keys")
                    || key.starts_with(&format!("{}:token", self.prefix));
                if !stays {
                    leaks.push(format!("the key {key:?}, which lives for {lives} ms"));
                }
            }
            for kind in kinds_of_channels {
                let mut question = redis::cmd("PUBSUB");
                question.arg(kind).arg(format!("{}:*", self.prefix));
                let mut channels: Vec<String> = question.query_async(&mut admin).await?;
                channels.retain(|channel| !channel.starts_with(&format!("{}:wake:", self.prefix)));
                leaks.extend(
                    channels.into_iter().map(|channel| format!("a subscription to {channel:?}")),
                );
            }
        }
        Ok(leaks)
    }

    async fn close(&self) {
        self.proxies.end();
    }

    async fn flush(&self) -> Result<(), BoxError> {
        // This does not use FLUSHALL, because the server may be shared.
        for mut admin in self.admins().await? {
            for key in self.keys(&mut admin).await? {
                admin.del::<_, ()>(key).await?;
            }
        }
        Ok(())
    }

    async fn foreign_lock(&self, name: &LockName, ttl: Duration) -> Result<(), BoxError> {
        let mut set = redis::cmd("SET");
        set.arg(self.lock_key(name))
            .arg(FOREIGN)
            .arg("NX")
            .arg("PX")
            .arg(u64::try_from(ttl.as_millis())?);
        let set: Option<String> = self.ask(&set).await?;
        set.map(drop).ok_or_else(|| "the lock is not free".into())
    }

    async fn foreign_unlock(&self, name: &LockName) -> Result<bool, BoxError> {
        let key = self.lock_key(name);
        let owner: Option<String> = self.ask(&Cmd::get(&key)).await?;
        Ok(owner.as_deref() == Some(FOREIGN) && self.ask::<u64>(&Cmd::del(&key)).await? == 1)
    }

    async fn pause(&self) -> Result<(), BoxError> {
        self.place.servers.pause()
    }

    async fn resume(&self) -> Result<(), BoxError> {
        self.place.servers.resume()
    }

    async fn fill(&self) -> Result<(), BoxError> {
        self.limit_memory("1mb")
    }

    async fn make_room(&self) -> Result<(), BoxError> {
        self.limit_memory(NO_LIMIT)
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.place.servers.lock()?.restart()
    }
}

impl Drop for RedisHarness {
    fn drop(&mut self) {
        if self.filled.load(Ordering::Relaxed) {
            // A failed case must not affect the next ones, and a paused server could not process
            // the command.
            self.place.servers.resume().expect("the server resumes");
            self.limit_memory(NO_LIMIT).expect("the server has room");
        }
    }
}

async fn connect(url: &str, prefix: &str) -> Result<Redis, BoxError> {
    let url = format!("{url}?prefix={prefix}&connect_timeout=8s");
    Ok(Redis::connect(Config::from_url(StoreUrl::parse(&url)?)?).await?)
}
