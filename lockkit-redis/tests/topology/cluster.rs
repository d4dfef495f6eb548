//! Tests a cluster whose slots stay where they are, and whose nodes come and go.

use std::{sync::Arc, time::Duration};

use lockkit_core::{
    ErrorKind, Kind, LockName, Locker, OwnerId,
    spi::{Backend as _, Claim, ClaimSpec, Mode, Released, RenewalOutcome, Wait, Wake},
};
use lockkit_fixture::{RedisCluster, RedisClusterOptions, RedisOptions, RedisServer};
use lockkit_redis::Redis;

use crate::support::*;

pub(crate) struct Nodes {
    pub(crate) redis: Redis,
    pub(crate) cluster: RedisCluster,
}

impl Nodes {
    pub(crate) async fn start() -> Self {
        Self::start_with(RedisClusterOptions::default(), "").await
    }

    pub(crate) async fn start_with(options: RedisClusterOptions, query: &str) -> Self {
        let cluster = RedisCluster::start_with(options).unwrap();
        let redis = connect(&format!("{}{query}", cluster.url())).await.unwrap();
        Self { redis, cluster }
    }

    /// A locker with connections of its own, like another process.
    pub(crate) async fn locker(&self) -> Locker {
        locker(connect(&self.cluster.url()).await.unwrap())
    }

    pub(crate) fn claim(&self, name: &str) -> Box<dyn Claim> {
        self.redis.claim(spec(name)).unwrap()
    }

    pub(crate) fn waiter(&self, name: &str) -> (Box<dyn Claim>, Arc<WakeSignal>) {
        let signal = Arc::new(WakeSignal::default());
        let mut spec = spec(name);
        spec.wake = Wake::to(&signal);
        (self.redis.claim(spec).unwrap(), signal)
    }

    pub(crate) fn slot(&self, name: &str) -> u16 {
        self.cluster.slot_of(&lock_key(name)).unwrap()
    }

    /// How often a node has answered with this error.
    pub(crate) fn errors(&self, node: usize, code: &str) -> u64 {
        let stats = self.cluster.nodes()[node].ask(["INFO", "errorstats"]).unwrap().text();
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
        line.map_or(0, |count| count.parse().unwrap())
    }

    /// How often the nodes were asked for their map since the last call.
    pub(crate) fn map_requests(&self) -> usize {
        let requests = self.cluster.nodes().iter().map(map_requests).sum();
        for node in self.cluster.nodes() {
            node.ask(["CONFIG", "RESETSTAT"]).unwrap();
        }
        requests
    }

    /// All keys on all nodes that may not stay, and all channels of slots. Counters stay.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let mut left = Vec::new();
        for node in self.cluster.nodes() {
            for words in [&["KEYS", "*"][..], &["PUBSUB", "SHARDCHANNELS"]] {
                left.extend(node.ask(words).unwrap().elements().iter().map(|key| key.text()));
            }
        }
        left.retain(|key| !key.starts_with("lockkit:token:{") && key != "lockkit:keys");
        left
    }

    /// Fails if something is left behind for long.
    pub(crate) async fn assert_clean(&self) {
        let deadline = tokio::time::Instant::now() + SOON;
        while !self.left_behind().is_empty() {
            assert!(tokio::time::Instant::now() < deadline, "{:?}", self.left_behind());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How often a node was asked for the map.
pub(crate) fn map_requests(node: &RedisServer) -> usize {
    let stats = node.ask(["INFO", "commandstats"]).unwrap().text();
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|slots:calls="));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

#[tokio::test]
async fn c11_all_names_and_kinds_work_wherever_their_slot_is() {
    let nodes = Nodes::start().await;
    for text in
        ["a", "{", "}", "{}", "}{", "{a}b", "a{b", "%7B", "🔒", "{🔒}", " ", "*", &"x".repeat(255)]
    {
        for (kind, mode) in [
            (Kind::Mutex, Mode::Exclusive),
            (Kind::Election, Mode::Exclusive),
            (Kind::RwLock, Mode::Shared),
            (Kind::RwLock, Mode::Exclusive),
        ] {
            let name = LockName::new(kind, text).unwrap();
            let spec = ClaimSpec::new(name.clone(), OwnerId::random(), mode, TTL, OP_TIMEOUT);
            let mut claim = nodes.redis.claim(spec).unwrap();
            granted(claim.attempt(Wait::No).await);
            assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
            assert_eq!(nodes.redis.inspect(&name).await.unwrap().holders.len(), 1);
            assert_eq!(claim.release().await.unwrap(), Released::Freed, "{text:?}");
        }
    }
    nodes.assert_clean().await;
}

#[tokio::test]
async fn c11_raw_keys_and_their_helpers_are_on_one_node() {
    let nodes = Nodes::start_with(RedisClusterOptions::default(), "?keys=raw").await;
    for name in ["a", "jobs/7", "🔒"] {
        let mut holder = nodes.claim(name);
        granted(holder.attempt(Wait::No).await);
        let owner = nodes.cluster.owner_of(nodes.cluster.slot_of(name).unwrap()).unwrap();
        assert_eq!(nodes.cluster.nodes()[owner].ask(["EXISTS", name]).unwrap().text(), "1");
        let (mut waiter, signal) = nodes.waiter(name);
        busy(waiter.attempt(Wait::Queue).await);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        lock(&mut waiter, &signal).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
    let error = nodes.redis.claim(spec("{a}")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
    // This holds whichever nodes its names are on.
    let escaped = connect(&nodes.cluster.url()).await.unwrap_err();
    assert_eq!(escaped.kind(), ErrorKind::InvalidOption, "{escaped}");
    nodes.assert_clean().await;
}

#[tokio::test]
async fn c8_waiters_for_names_in_many_slots_are_kept_alive_and_woken() {
    let nodes = Nodes::start().await;
    let names: Vec<_> = (0..30).map(|number| format!("name {number}")).collect();
    let mut holders = Vec::new();
    let mut waiters = Vec::new();
    for name in &names {
        let mut holder = nodes.claim(name);
        granted(holder.attempt(Wait::No).await);
        holders.push(holder);
        let signal = Arc::new(WakeSignal::default());
        // The waiter is dead after 6 s without a sign of life.
        let mut spec = spec_for(name, TTL, Duration::from_secs(3));
        spec.wake = Wake::to(&signal);
        let mut waiter = nodes.redis.claim(spec).unwrap();
        busy(waiter.attempt(Wait::Queue).await);
        waiters.push((waiter, signal));
    }
    let end = tokio::time::Instant::now() + Duration::from_secs(9);
    while tokio::time::Instant::now() < end {
        for (waiter, _) in &mut waiters {
            busy(waiter.attempt(Wait::Queue).await);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for name in &names {
        assert_eq!(nodes.redis.inspect(&mutex(name)).await.unwrap().waiters, Some(1), "{name}");
    }
    for (holder, (waiter, signal)) in holders.iter_mut().zip(&mut waiters) {
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        lock(waiter, signal).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
    nodes.assert_clean().await;
}

#[tokio::test]
async fn c4_tokens_rise_over_the_loss_of_a_node() {
    let options = RedisClusterOptions::default().with_node_timeout(Duration::from_secs(60));
    let mut nodes = Nodes::start_with(options, "").await;
    let owner = nodes.cluster.owner_of(nodes.slot("a")).unwrap();
    let mut claim = nodes.claim("a");
    let before = granted(claim.attempt(Wait::No).await).token;
    let (mut waiter, signal) = nodes.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);

    nodes.cluster.node_mut(owner).kill().unwrap();
    signal.heard().await;
    let error = waiter.attempt(Wait::Queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    nodes.cluster.node_mut(owner).restart().unwrap();
    nodes.cluster.wait_settled(SOON).unwrap();
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
    assert!(granted(waiter.attempt(Wait::Queue).await).token > before);
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    nodes.assert_clean().await;
}

#[tokio::test]
async fn c9_a_replica_takes_over_with_locks_and_queue() {
    let nodes = Nodes::start_with(RedisClusterOptions::default().with_replicas(), "").await;
    let owner = nodes.cluster.owner_of(nodes.slot("a")).unwrap();
    let mut holder = nodes.claim("a");
    let before = granted(holder.attempt(Wait::No).await).token;
    let (mut waiter, signal) = nodes.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);

    nodes.cluster.failover(3 + owner).unwrap();
    nodes.cluster.wait_settled(SOON).unwrap();
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    // The old node has dropped the subscription, and has sent a message about it.
    signal.heard().await;
    busy(waiter.attempt(Wait::Queue).await);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert!(lock(&mut waiter, &signal).await.token > before);
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c8_a_subscription_that_dies_alone_is_noticed_and_made_again() {
    let nodes = Nodes::start().await;
    let owner = nodes.cluster.owner_of(nodes.slot("a")).unwrap();
    let mut holder = nodes.claim("a");
    granted(holder.attempt(Wait::No).await);
    let (mut waiter, signal) = nodes.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);
    let killed = nodes.cluster.nodes()[owner].ask(["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
    assert_eq!(killed.text(), "1");
    signal.heard().await;
    busy(waiter.attempt(Wait::Queue).await);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    lock(&mut waiter, &signal).await;
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    nodes.assert_clean().await;
}

#[tokio::test]
async fn c13_a_cluster_closed_during_a_request_for_its_map_is_an_error() {
    let options = RedisClusterOptions::default().with_node_timeout(Duration::from_secs(60));
    let mut nodes = Nodes::start_with(options, "?connect_timeout=10s").await;
    let owner = nodes.cluster.owner_of(nodes.slot("a")).unwrap();
    granted(nodes.claim("a").attempt(Wait::No).await);
    nodes.cluster.node_mut(owner).kill().unwrap();
    let gone = nodes.claim("a").attempt(Wait::No).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unavailable, "{gone}");
    let others: Vec<_> = (0..3).filter(|node| *node != owner).collect();
    others.iter().for_each(|node| nodes.cluster.nodes()[*node].pause().unwrap());
    let mut claim = nodes.claim("a");
    let close = async {
        // The attempt below is polled first, and has asked by now.
        tokio::time::sleep(Duration::from_millis(50)).await;
        nodes.redis.close().await.unwrap();
        others.iter().for_each(|node| nodes.cluster.nodes()[*node].resume().unwrap());
    };
    let (error, ()) = tokio::join!(claim.attempt(Wait::No), close);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
}

#[tokio::test]
async fn c13_an_error_that_another_node_could_not_help_does_not_ask_for_the_map() {
    let nodes = Nodes::start().await;
    assert!(nodes.map_requests() > 0);
    let owner = nodes.cluster.owner_of(nodes.slot("a")).unwrap();
    nodes.cluster.nodes()[owner].ask(["SADD", &lock_key("a"), "x"]).unwrap();
    nodes.map_requests();
    for _ in 0..5 {
        let error = nodes.claim("a").attempt(Wait::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    }
    assert_eq!(nodes.map_requests(), 0);
}

#[tokio::test]
async fn c13_a_node_that_may_evict_is_refused_when_strict() {
    let evicting = RedisOptions::default().with_args(["--maxmemory-policy", "allkeys-lru"]);
    let cluster =
        RedisCluster::start_with(RedisClusterOptions::default().with_nodes(evicting)).unwrap();
    let error = connect(&format!("{}?strict=true", cluster.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    connect(&cluster.url()).await.unwrap();
}
