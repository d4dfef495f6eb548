//! Redis with more than one server under test: the primary that sentinels name, and a cluster of three masters.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Store};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
    url::StoreUrl,
};
use lockkit_fixture::{RedisCluster, RedisClusterOptions, RedisServer, SentinelGroup, SentinelOptions};
use lockkit_redis::{
    Config, Redis,
    redis::{self, AsyncCommands as _, Cmd, FromRedisValue, ServerErrorKind, aio::MultiplexedConnection},
};

const FOREIGN: &str = "another program";
/// No server that is stopped for a case may be replaced by another one.
const NEVER: Duration = Duration::from_secs(3600);
const SETTLED: Duration = Duration::from_secs(30);

/// Several servers. Each case works under a random prefix of its own.
///
/// Clients learn the servers' addresses from the servers, which no proxy stands in front of: so there is no
/// [`Hook::Wire`], and faults are made between core and backend.
#[derive(Debug)]
pub(crate) struct TopologyStore {
    name: &'static str,
    url: String,
    servers: Arc<Mutex<Servers>>,
    descriptor: Descriptor,
}

#[derive(Debug)]
enum Servers {
    Sentinel(SentinelGroup),
    Cluster(RedisCluster),
}

impl TopologyStore {
    /// Starts the servers, and asks what each topology can do.
    pub(crate) fn start() -> Result<[Self; 2], BoxError> {
        let group = SentinelGroup::start_with(SentinelOptions::default().with_down_after(NEVER))?;
        let cluster = RedisCluster::start_with(RedisClusterOptions::default().with_node_timeout(SETTLED))?;
        let (at_sentinels, at_nodes) = (group.url(), cluster.url());
        Ok([
            Self::on("redis-sentinel", at_sentinels, Servers::Sentinel(group))?,
            Self::on("redis-cluster", at_nodes, Servers::Cluster(cluster))?,
        ])
    }

    fn on(name: &'static str, url: String, servers: Servers) -> Result<Self, BoxError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let backend = runtime.block_on(connect(&url, "lockkit-probe"))?;
        let descriptor = backend.descriptor().clone();
        Ok(Self { name, url, servers: Arc::new(Mutex::new(servers)), descriptor })
    }
}

#[async_trait]
impl Store for TopologyStore {
    fn name(&self) -> &str {
        self.name
    }

    fn descriptor(&self) -> Descriptor {
        self.descriptor.clone()
    }

    fn is_twin(&self) -> bool {
        // What is special to a cluster is where a request goes, whatever lock it is about.
        true
    }

    fn hooks(&self) -> Vec<Hook> {
        vec![Hook::Flush, Hook::Foreign, Hook::Pause, Hook::Restart]
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let prefix = format!("lockkit-test-{:016x}", rand::random::<u64>());
        let (url, servers) = (self.url.clone(), Arc::clone(&self.servers));
        Ok(Box::new(TopologyHarness { url, prefix, servers, paused: Mutex::default() }))
    }
}

#[derive(Debug)]
struct TopologyHarness {
    url: String,
    prefix: String,
    servers: Arc<Mutex<Servers>>,
    paused: Mutex<bool>,
}

impl Servers {
    /// Those that take writes.
    fn primaries(&self) -> &[RedisServer] {
        match self {
            Self::Sentinel(group) => &group.servers()[..1],
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    fn restart(&mut self) -> Result<(), BoxError> {
        match self {
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

impl TopologyHarness {
    fn servers(&self) -> MutexGuard<'_, Servers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to each server that takes writes.
    async fn admins(&self) -> Result<Vec<MultiplexedConnection>, BoxError> {
        let urls: Vec<_> = self.servers().primaries().iter().map(RedisServer::url).collect();
        let mut admins = Vec::new();
        for url in urls {
            admins.push(redis::Client::open(url)?.get_multiplexed_async_connection().await?);
        }
        Ok(admins)
    }

    /// What the server says that has the keys.
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, BoxError> {
        for mut admin in self.admins().await? {
            match command.query_async(&mut admin).await {
                Err(error) if error.kind() == redis::ErrorKind::Server(ServerErrorKind::Moved) => {}
                answer => return Ok(answer?),
            }
        }
        Err("no server has the slot".into())
    }

    /// The public format: other programs lock by it.
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

    fn set_paused(&self, pause: bool) -> Result<(), BoxError> {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        if *paused != pause {
            for server in self.servers().primaries() {
                if pause {
                    server.pause()?;
                } else {
                    server.resume()?;
                }
            }
            *paused = pause;
        }
        Ok(())
    }
}

#[async_trait]
impl Harness for TopologyHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(connect(&self.url, &self.prefix).await?))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        let base = self.lock_key(name);
        self.ask(
            Cmd::new()
                .arg("DEL")
                .arg([&base, ":grants"].concat())
                .arg([&base, ":holders"].concat())
                .arg(base),
        )
        .await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let mut leaks = Vec::new();
        for mut admin in self.admins().await? {
            for key in self.keys(&mut admin).await? {
                let lives: i64 = admin.pttl(&key).await?;
                // What stays of a name that nobody uses: the last token for a while, and the note. And of the prefix.
                let stays = lives == -2 || (key.ends_with("}:note") && lives == -1) || key.ends_with(":keys");
                if !stays && (!key.ends_with("}:fence") || lives < 0) {
                    leaks.push(format!("the key {key:?}, which lives for {lives} ms"));
                }
            }
            for of in ["CHANNELS", "SHARDCHANNELS"] {
                let mut question = redis::cmd("PUBSUB");
                question.arg(of).arg(format!("{}:*", self.prefix));
                let mut channels: Vec<String> = question.query_async(&mut admin).await?;
                channels.retain(|channel| !channel.starts_with(&format!("{}:wake:", self.prefix)));
                leaks.extend(channels.into_iter().map(|channel| format!("a subscription to {channel:?}")));
            }
        }
        Ok(leaks)
    }

    async fn close(&self) {}

    async fn flush(&self) -> Result<(), BoxError> {
        for mut admin in self.admins().await? {
            for key in self.keys(&mut admin).await? {
                admin.del::<_, ()>(key).await?;
            }
        }
        Ok(())
    }

    async fn foreign_lock(&self, name: &LockName, ttl: Duration) -> Result<(), BoxError> {
        let mut set = redis::cmd("SET");
        set.arg(self.lock_key(name)).arg(FOREIGN).arg("NX").arg("PX").arg(u64::try_from(ttl.as_millis())?);
        let set: Option<String> = self.ask(&set).await?;
        set.map(drop).ok_or_else(|| "the lock is not free".into())
    }

    async fn foreign_unlock(&self, name: &LockName) -> Result<bool, BoxError> {
        let key = self.lock_key(name);
        let owner: Option<String> = self.ask(redis::cmd("GET").arg(&key)).await?;
        Ok(owner.as_deref() == Some(FOREIGN) && self.ask::<u64>(redis::cmd("DEL").arg(&key)).await? == 1)
    }

    async fn pause(&self) -> Result<(), BoxError> {
        self.set_paused(true)
    }

    async fn resume(&self) -> Result<(), BoxError> {
        self.set_paused(false)
    }

    async fn restart(&self) -> Result<(), BoxError> {
        self.servers().restart()
    }
}

impl Drop for TopologyHarness {
    fn drop(&mut self) {
        // A case that failed must not take the next ones with it.
        self.set_paused(false).expect("the servers go on");
    }
}

async fn connect(url: &str, prefix: &str) -> Result<Redis, BoxError> {
    let url = format!("{url}?prefix={prefix}");
    Ok(Redis::connect(Config::from_url(StoreUrl::parse(&url)?)?).await?)
}
