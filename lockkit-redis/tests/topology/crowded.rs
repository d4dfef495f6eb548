//! Tests requests that wait for replicas, beside a server that takes no new connections.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Claim, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::RedisServer;
use lockkit_redis::Redis;
use tokio::time::timeout;

use crate::{proxy::Proxy, support::*};

const QUERY: &str = "?wait_replicas=1&wait_timeout=60s&connect_timeout=60s";

/// A primary, and a replica in sync.
struct Pair {
    primary: RedisServer,
    admin: Admin,
    replica: RedisServer,
}

impl Pair {
    async fn start() -> Self {
        let primary = RedisServer::start().unwrap();
        let admin = Admin::to(&primary).await;
        let replica = RedisServer::start_replica_of(&primary).unwrap();
        let pair = Self { primary, admin, replica };
        pair.in_sync().await;
        pair
    }

    /// Right after its start, a replica confirms only once a second.
    async fn in_sync(&self) {
        self.admin.ask::<()>(&["SET", "in sync", ""]).await;
        assert_eq!(self.admin.ask::<u64>(&["WAIT", "1", "10000"]).await, 1);
    }

    async fn stat(&self, section: &str, field: &str) -> u64 {
        let stats: String = self.admin.ask(&["INFO", section]).await;
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
        line.unwrap().parse().unwrap()
    }

    /// Resumes the replica once a request waits for it, and another one has found that no
    /// connection can be opened.
    async fn go_on_when(&self, none_can_be_opened: impl AsyncFn() -> bool) {
        while self.stat("clients", "blocked_clients").await < 1 || !none_can_be_opened().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.replica.resume().unwrap();
        self.in_sync().await;
    }
}

/// Takes the locks one after the other, on one connection.
async fn holders(redis: &Redis, count: usize) -> Vec<Box<dyn Claim>> {
    let mut held = Vec::new();
    for number in 0..count {
        let mut claim = redis.claim(spec_for(&format!("a{number}"), 60 * TTL, 12 * SOON)).unwrap();
        granted(claim.attempt(Wait::No).await);
        held.push(claim);
    }
    held
}

async fn assert_renewed(held: &mut [Box<dyn Claim>], go_on: impl Future<Output = ()>) {
    let renewals = join_all(held.iter_mut().map(|claim| claim.renew(None)));
    let all = async { tokio::join!(renewals, go_on).0 };
    let outcomes = timeout(2 * SOON, all)
        .await
        .expect("a renewal waits for a connection that can't be opened");
    for outcome in outcomes {
        assert!(matches!(outcome.unwrap(), RenewalOutcome::Alive(_)));
    }
}

#[tokio::test]
async fn c10_a_renewal_waits_for_an_open_connection_where_the_server_refuses_new_ones() {
    let pair = Pair::start().await;
    let redis = connect(&format!("{}{QUERY}", pair.primary.url())).await.unwrap();
    let mut held = holders(&redis, 4).await;
    pair.replica.pause().unwrap();
    pair.admin.ask::<()>(&["CONFIG", "SET", "maxclients", "1"]).await;
    let refused = async || pair.stat("stats", "rejected_connections").await > 0;
    assert_renewed(&mut held, pair.go_on_when(refused)).await;
    for mut claim in held {
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c10_a_renewal_waits_for_an_open_connection_where_new_ones_hang() {
    let pair = Pair::start().await;
    let proxy = Proxy::to(pair.primary.port()).await;
    let redis = connect(&proxy.url(QUERY)).await.unwrap();
    let mut held = holders(&redis, 4).await;
    pair.replica.pause().unwrap();
    proxy.hang.store(true, Ordering::SeqCst);
    let hangs = async || proxy.hung.load(Ordering::SeqCst) > 0;
    assert_renewed(&mut held, pair.go_on_when(hangs)).await;
    for mut claim in held {
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c13_where_none_is_open_and_none_can_be_opened_that_is_the_error() {
    let pair = Pair::start().await;
    let redis = connect(&format!("{}{QUERY}", pair.primary.url())).await.unwrap();
    pair.admin.ask::<()>(&["CONFIG", "SET", "maxclients", "1"]).await;
    let mut claims: Vec<_> =
        (0..4).map(|number| redis.claim(spec(&format!("a{number}"))).unwrap()).collect();
    let attempts = join_all(claims.iter_mut().map(|claim| claim.attempt(Wait::No)));
    for answer in timeout(SOON, attempts).await.expect("the error is waited for") {
        let error = answer.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, false),
            "{error}"
        );
    }
}

/// A request that finds no idle connection lets a task open one. Meanwhile, it may be answered on
/// another one.
#[tokio::test]
async fn c6_no_more_connections_are_being_opened_than_requests_wait_at_once() {
    const AT_ONCE: usize = 6;
    let pair = Pair::start().await;
    let proxy = Proxy::to(pair.primary.port()).await;
    let redis = connect(&proxy.url(QUERY)).await.unwrap();
    let mut held = holders(&redis, AT_ONCE).await;
    proxy.hang.store(true, Ordering::SeqCst);
    for _ in 0..20 {
        let renewals = join_all(held.iter_mut().map(|claim| claim.renew(None)));
        for outcome in
            timeout(SOON, renewals).await.expect("renewals wait for connections that hang")
        {
            assert!(matches!(outcome.unwrap(), RenewalOutcome::Alive(_)));
        }
    }
    let opened = proxy.hung.load(Ordering::SeqCst);
    assert!((1..AT_ONCE).contains(&opened), "{opened} connections for {AT_ONCE} requests at once");
}

/// Each request finds that no connection can be opened, but does not try it by itself.
#[tokio::test]
async fn c13_a_server_that_refuses_connections_is_not_asked_for_one_by_each_request() {
    let pair = Pair::start().await;
    let redis = connect(&format!("{}{QUERY}", pair.primary.url())).await.unwrap();
    let mut held = holders(&redis, 3).await;
    pair.admin.ask::<()>(&["CONFIG", "SET", "maxclients", "1"]).await;
    let start = Instant::now();
    for _ in 0..200 {
        for outcome in join_all(held.iter_mut().map(|claim| claim.renew(None))).await {
            assert!(matches!(outcome.unwrap(), RenewalOutcome::Alive(_)));
        }
    }
    let refused = u128::from(pair.stat("stats", "rejected_connections").await);
    // Two at once, in each 200 ms.
    let enough = 2 * (1 + start.elapsed().as_millis() / 200);
    assert!((1..=enough).contains(&refused), "asked {refused} times, and {enough} times is enough");
}
