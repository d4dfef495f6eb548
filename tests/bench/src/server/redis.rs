//! Describes Redis and Valkey: one server, or all servers of a cluster that keep locks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use lockkit::{
    redis::{
        BareServers, Config,
        redis::{RedisError, aio::MultiplexedConnection, cmd},
    },
    url::StoreUrl,
};

use super::{Facts, Server, guarantee, setting};
use crate::{
    Error, Result,
    report::{Guarantee, GuaranteeClass, Setting},
};

/// The settings to ask for with `CONFIG GET`, and their meanings.
const SETTINGS: [(&str, &str); 6] = [
    ("appendonly", "whether the server writes each change to a file"),
    ("appendfsync", "always syncs the file before the answer, everysec up to a second later"),
    ("no-appendfsync-on-rewrite", "with yes, the server does not sync the file during a rewrite"),
    ("save", "the times of snapshots; a snapshot restores old locks, but not the last ones"),
    ("maxmemory-policy", "any value except noeviction may evict held locks"),
    ("min-replicas-to-write", "a primary with fewer replicas grants no locks"),
];

/// Commands that are not requests of clients, although the server counts them in the same way.
/// lockkit's scripts call them, or replicas, or the client that reads the counts. A client of
/// lockkit sends none of them.
pub(super) const NOT_OF_CLIENTS: [&str; 31] = [
    "del",
    "exists",
    "get",
    "hdel",
    "hexists",
    "hget",
    "hgetall",
    "hmget",
    "hmset",
    "hset",
    "info",
    "mget",
    "pexpire",
    "psync",
    "pttl",
    "pubsub",
    "pubsub|numsub",
    "pubsub|shardnumsub",
    "publish",
    "replconf",
    "set",
    "spublish",
    "sync",
    "time",
    "zadd",
    "zcount",
    "zrange",
    "zrangebyscore",
    "zrem",
    "zremrangebyscore",
    "zscore",
];

#[derive(Debug)]
pub(crate) struct RedisServers {
    servers: BareServers,
    is_sentinel: bool,
    is_cluster: bool,
}

/// One server's answers about itself; a fact that it does not report is absent.
#[derive(Clone, Debug, Default)]
struct ServerReply {
    info: BTreeMap<String, String>,
    config: BTreeMap<String, String>,
}

impl RedisServers {
    pub(crate) async fn open(url: StoreUrl) -> Result<Self> {
        let is_sentinel = url.scheme().ends_with("+sentinel");
        let is_cluster = url.scheme().ends_with("+cluster");
        let config = Config::from_url(url).map_err(opening)?;
        let servers = BareServers::connect(config).await.map_err(opening)?;
        Ok(Self { servers, is_sentinel, is_cluster })
    }

    async fn connections(&self) -> Result<Vec<MultiplexedConnection>> {
        self.servers.connections().await.map_err(opening)
    }
}

fn opening(error: lockkit::Error) -> Error {
    Error::of("could not connect to Redis", error)
}

fn asking(error: RedisError) -> Error {
    Error::of("could not read the state of Redis", error)
}

#[async_trait]
impl Server for RedisServers {
    async fn facts(&self) -> Result<Facts> {
        let connections = self.connections().await?;
        let all = try_join_all(connections.into_iter().map(told)).await.map_err(asking)?;
        let is_valkey = all.iter().any(|told| told.info.contains_key("valkey_version"));
        let (product, version) =
            if is_valkey { ("Valkey", "valkey_version") } else { ("Redis", "redis_version") };
        let version = join(all.iter().map(|told| told.info(version)));
        let mut settings: Vec<_> = SETTINGS
            .iter()
            .map(|(name, meaning)| {
                let value = join(all.iter().map(|told| told.config(name)));
                setting(
                    name,
                    value.as_deref().map(|value| if value.is_empty() { "off" } else { value }),
                    meaning,
                )
            })
            .collect();
        settings.extend(self.topology(&all));
        Ok(Facts {
            product: product.to_owned(),
            version: version.unwrap_or_else(|| "unknown".to_owned()),
            settings,
            guarantee: worst(
                all.iter().map(|told| judge(told, self.is_sentinel || self.is_cluster)),
            ),
        })
    }

    async fn requests(&self) -> Result<Option<u64>> {
        let mut sum = 0;
        for mut connection in self.connections().await? {
            let answer: Result<String, _> =
                cmd("INFO").arg("commandstats").query_async(&mut connection).await;
            match answer {
                Ok(stats) => sum += calls(&stats),
                Err(error) if is_refusal(&error) => return Ok(None),
                Err(error) => return Err(asking(error)),
            }
        }
        Ok(Some(sum))
    }

    async fn cpu_time(&self) -> Result<Option<Duration>> {
        let mut sum = Duration::ZERO;
        for mut connection in self.connections().await? {
            let answer: Result<String, _> =
                cmd("INFO").arg("cpu").query_async(&mut connection).await;
            match answer.map(|info| cpu_time(&info)) {
                Ok(Some(time)) => sum += time,
                Ok(None) => return Ok(None),
                Err(error) if is_refusal(&error) => return Ok(None),
                Err(error) => return Err(asking(error)),
            }
        }
        Ok(Some(sum))
    }
}

impl RedisServers {
    fn topology(&self, all: &[ServerReply]) -> Vec<Setting> {
        let role = join(all.iter().map(|told| told.info("role")));
        let replicas = join(all.iter().map(|told| told.info("connected_slaves")));
        let failover = match (self.is_sentinel, self.is_cluster) {
            (true, _) => "sentinels".to_owned(),
            (_, true) => format!("a cluster of {} primaries", all.len()),
            _ => "none in the URL".to_owned(),
        };
        vec![
            setting("role", role.as_deref(), "a primary (master) grants the locks"),
            setting(
                "connected_slaves",
                replicas.as_deref(),
                "replicas, which receive a lock after its grant",
            ),
            setting("failover", Some(&failover), "the part of the set-up that promotes a replica"),
        ]
    }
}

impl ServerReply {
    fn info(&self, name: &str) -> Option<&str> {
        self.info.get(name).map(String::as_str)
    }

    fn config(&self, name: &str) -> Option<&str> {
        self.config.get(name).map(String::as_str)
    }
}

/// A refusal is not an error. The user may lack the right, or a service may have removed the
/// command.
async fn told(mut connection: MultiplexedConnection) -> Result<ServerReply, RedisError> {
    let mut told = ServerReply::default();
    for section in ["server", "replication"] {
        match cmd("INFO").arg(section).query_async::<String>(&mut connection).await {
            Ok(text) => told.info.extend(fields(&text)),
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(error),
        }
    }
    for (name, _) in SETTINGS.iter().chain([&("maxmemory", "")]) {
        match cmd("CONFIG").arg("GET").arg(name).query_async(&mut connection).await {
            Ok(found) => told.config.extend::<BTreeMap<_, _>>(found),
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(told)
}

/// Whether the server answered with a refusal.
fn is_refusal(error: &RedisError) -> bool {
    error.code().is_some()
}

fn fields(info: &str) -> impl Iterator<Item = (String, String)> {
    let pairs = info.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
}

/// All different values, in order; `None` if one value is missing.
fn join<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Option<String> {
    let values: Option<BTreeSet<_>> = values.collect();
    values.map(|values| values.into_iter().collect::<Vec<_>>().join(", "))
}

/// The sum of the clients' requests.
fn calls(stats: &str) -> u64 {
    let counts = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls: u64 = rest.split(',').next()?.parse().ok()?;
        (!NOT_OF_CLIENTS.contains(&name)).then_some(calls)
    });
    counts.sum()
}

/// The time that the server's own threads have used, in `INFO cpu`.
fn cpu_time(info: &str) -> Option<Duration> {
    let seconds = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse::<f64>().ok()
    };
    let used = seconds("used_cpu_sys:")? + seconds("used_cpu_user:")?;
    Duration::try_from_secs_f64(used).ok()
}

fn worst(all: impl Iterator<Item = Guarantee>) -> Guarantee {
    let nothing = || guarantee(GuaranteeClass::Volatile, "No server reported its settings.");
    all.min_by_key(|guarantee| guarantee.class).unwrap_or_else(nothing)
}

fn judge(told: &ServerReply, has_failover: bool) -> Guarantee {
    use GuaranteeClass as Class;
    // Without a limit, the eviction policy has no effect.
    let is_limited = told.config("maxmemory") != Some("0");
    let evicts =
        is_limited && told.config("maxmemory-policy").is_some_and(|policy| policy != "noeviction");
    let may_fail_over = has_failover || told.info("connected_slaves") != Some("0");
    match (told.config("appendonly"), told.config("appendfsync")) {
        _ if evicts => guarantee(
            Class::Volatile,
            "The server may evict held locks if it runs short of memory.",
        ),
        (None, _) => guarantee(
            Class::Volatile,
            "The server does not report whether it keeps locks on disk. A restart may forget all \
             of them.",
        ),
        (Some("yes"), Some("always")) if told.config("no-appendfsync-on-rewrite") != Some("no") => {
            guarantee(
                Class::Volatile,
                "While the server rewrites its append-only file, it answers before grants are on \
                 disk (no-appendfsync-on-rewrite). A crash of the machine then loses them.",
            )
        }
        (Some("yes"), Some("always")) if may_fail_over => guarantee(
            Class::AsynchronousFailover,
            "A replica that takes over may lack the last grants. Then two clients may hold the \
             same lock.",
        ),
        (Some("yes"), Some("always")) => guarantee(
            Class::OneDurableServer,
            "The server writes each grant to disk before it answers. While it is down, no client \
             gets a lock.",
        ),
        // The guarantee is the same with replicas, because a restarted primary has also lost
        // grants.
        (Some("yes"), _) => guarantee(
            Class::Volatile,
            "A crash of the machine loses the grants of the last second. appendfsync=always keeps \
             them.",
        ),
        _ => guarantee(
            Class::Volatile,
            "A restart of the server loses all locks, or restores the locks of its last snapshot.",
        ),
    }
}
