//! Tests a primary that sentinels name.

use std::time::Duration;

use futures_util::future::join_all;
use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::{RedisOptions, SentinelGroup, SentinelOptions};
use tokio::time::timeout;

use crate::support::*;

/// Waits until both replicas have a lock. A WAIT would only count the writes of its own connection.
async fn replicated(group: &SentinelGroup, name: &str) {
    let deadline = tokio::time::Instant::now() + SOON;
    let has_lock = |server: usize| {
        group.servers()[server].ask(["EXISTS", &lock_key(name)]).unwrap().text() == "1"
    };
    while !(has_lock(1) && has_lock(2)) {
        assert!(tokio::time::Instant::now() < deadline, "the replicas don't get the lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Makes the sentinels name the second server from now on. The first server does not know that.
fn replace_primary(group: &SentinelGroup) {
    for sentinel in group.sentinels() {
        sentinel.ask(["SENTINEL", "REMOVE", group.service_name()]).unwrap();
    }
    group.servers()[1].promote().unwrap();
    let port = group.servers()[1].port().to_string();
    for sentinel in group.sentinels() {
        sentinel
            .ask(["SENTINEL", "MONITOR", group.service_name(), "127.0.0.1", &port, "2"])
            .unwrap();
    }
}

/// Makes the third server follow the second one, and confirm its writes.
async fn follow_new_primary(group: &SentinelGroup) {
    let port = group.servers()[1].port().to_string();
    group.servers()[2].ask(["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let admin = Admin::to(&group.servers()[1]).await;
    admin.ask::<()>(&["SET", "in sync", ""]).await;
    assert_eq!(admin.ask::<u64>(&["WAIT", "1", "10000"]).await, 1);
}

/// Options with which the sentinels change nothing by themselves.
fn calm() -> SentinelOptions {
    SentinelOptions::default().with_down_after(Duration::from_secs(3600))
}

#[tokio::test]
async fn c13_one_sentinel_is_enough_and_none_is_an_error() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    for paused in 0..3 {
        group.sentinels()[paused].pause().unwrap();
        if paused < 2 {
            let redis = connect(&group.url()).await.unwrap();
            granted(redis.claim(spec(&format!("a{paused}"))).unwrap().attempt(Wait::No).await);
        }
    }
    let error = connect(&format!("{}?connect_timeout=200ms", group.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("sentinels"), "{error}");
}

/// A sentinel that is cut off from the others still names the former primary, and may be the first
/// to answer.
#[tokio::test]
async fn c1_the_primary_is_the_one_that_most_sentinels_name() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    replace_primary(&group);
    let [cut_off, others @ ..] = group.sentinels() else { panic!("no sentinels") };
    let port = group.servers()[0].port().to_string();
    cut_off.ask(["SENTINEL", "REMOVE", group.service_name()]).unwrap();
    cut_off.ask(["SENTINEL", "MONITOR", group.service_name(), "127.0.0.1", &port, "2"]).unwrap();
    others.iter().for_each(|sentinel| sentinel.pause().unwrap());
    let url = format!("{}?connect_timeout=60s", group.url());
    let connecting = tokio::spawn(async move { connect(&url).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    others.iter().for_each(|sentinel| sentinel.resume().unwrap());
    let redis = connecting.await.unwrap().unwrap();
    granted(redis.claim(spec("a")).unwrap().attempt(Wait::No).await);
    let has_lock =
        |server: usize| group.servers()[server].ask(["EXISTS", &lock_key("a")]).unwrap().text();
    assert_eq!([has_lock(0), has_lock(1)], ["0", "1"], "granted by the former primary");
}

/// After an error that another server might not give, the sentinels are asked. One that is cut off
/// is the first to answer.
#[tokio::test]
async fn c1_the_right_primary_is_not_left_because_of_a_single_sentinel() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    replace_primary(&group);
    let [cut_off, others @ ..] = group.sentinels() else { panic!("no sentinels") };
    let former = &group.servers()[0];
    let right = &group.servers()[1];
    cut_off.ask(["SENTINEL", "REMOVE", group.service_name()]).unwrap();
    let port = former.port().to_string();
    cut_off.ask(["SENTINEL", "MONITOR", group.service_name(), "127.0.0.1", &port, "2"]).unwrap();
    let redis = connect(&format!("{}?connect_timeout=30s", group.url())).await.unwrap();
    let mut holder = redis.claim(spec("a")).unwrap();
    granted(holder.attempt(Wait::No).await);
    assert_eq!(right.ask(["EXISTS", &lock_key("a")]).unwrap().text(), "1");

    others.iter().for_each(|sentinel| sentinel.pause().unwrap());
    right.ask(["CONFIG", "SET", "maxmemory", "1mb"]).unwrap();
    let refused = redis.claim(spec("b")).unwrap().attempt(Wait::No).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StoreFull, "{refused}");
    right.ask(["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    // lockkit waits for the other sentinels, for half of the connect_timeout.
    let patient = spec_for("a", TTL, SOON);
    busy(redis.claim(patient).unwrap().attempt(Wait::No).await);
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(
        former.ask(["EXISTS", &lock_key("a")]).unwrap().text(),
        "0",
        "granted by the former primary"
    );
}

#[tokio::test]
async fn c13_an_unreachable_primary_is_named() {
    let mut group = SentinelGroup::start_with(calm()).unwrap();
    let url = format!("{}?connect_timeout=500ms", group.url());
    let named = format!("127.0.0.1:{} (the primary of ", group.servers()[0].port());
    group.servers()[0].pause().unwrap();
    let error = connect(&url).await.unwrap_err().to_string();
    assert!(error.contains(&named) && error.contains("did not answer"), "{error}");
    group.server_mut(0).kill().unwrap();
    let error = connect(&url).await.unwrap_err().to_string();
    assert!(error.contains(&named) && error.contains("no server listens there"), "{error}");
}

#[tokio::test]
async fn c13_a_service_that_the_sentinels_do_not_know_is_named() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    let url = group.url().replace(group.service_name(), "nothing");
    let error = connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("\"nothing\""), "{error}");
}

#[tokio::test]
async fn c9_a_failover_is_followed_by_holders_and_waiters() {
    let options = calm().with_servers(RedisOptions::default().with_password("hunter2"));
    let group = SentinelGroup::start_with(options).unwrap();
    let url = group.url().replace("://", "://:hunter2@");
    let redis = connect(&url).await.unwrap();
    let mut holder = redis.claim(spec("a")).unwrap();
    let before = granted(holder.attempt(Wait::No).await).token;
    replicated(&group, "a").await;

    group.sentinels()[0].ask(["SENTINEL", "FAILOVER", group.service_name()]).unwrap();
    let primary = group.wait_for_new_primary(0, SOON).unwrap();
    let _ = holder.renew(None).await;
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(group.servers()[primary].ask(["EXISTS", &lock_key("a")]).unwrap().text(), "1");
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    let mut next = redis.claim(spec("a")).unwrap();
    assert!(granted(next.attempt(Wait::No).await).token > before);
}

#[tokio::test]
async fn c13_a_demoted_primary_is_left_for_the_one_that_the_sentinels_name() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    let redis = connect(&group.url()).await.unwrap();
    let mut holder = redis.claim(spec("a")).unwrap();
    granted(holder.attempt(Wait::No).await);
    replicated(&group, "a").await;
    // An operator may do this without a sentinel that cuts the clients off.
    replace_primary(&group);
    // The old primary keeps its data, because its new primary can't be reached.
    group.servers()[0].ask(["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let error = holder.renew(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_a_try_on_a_primary_that_was_demoted_is_answered_by_the_new_primary() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    let holds = connect(&group.url()).await.unwrap();
    let tries = connect(&group.url()).await.unwrap();
    granted(holds.claim(spec("a")).unwrap().attempt(Wait::No).await);
    replicated(&group, "a").await;
    replace_primary(&group);
    // Only the new primary knows that the lock is free by now.
    group.servers()[0].ask(["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    group.servers()[1].ask(["DEL", &lock_key("a")]).unwrap();
    let mut claim = tries.claim(spec("a")).unwrap();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    granted(claim.attempt(Wait::No).await);
    assert_eq!(tries.inspect(&mutex("a")).await.unwrap().holders.len(), 1);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c8_a_primary_without_replicas_is_left_for_the_one_that_the_sentinels_name() {
    for (query, least) in [("?wait_replicas=1&wait_timeout=5s", "0"), ("", "1")] {
        let group = SentinelGroup::start_with(calm()).unwrap();
        let redis = connect(&format!("{}{query}", group.url())).await.unwrap();
        let mut claim = redis.claim(spec("a")).unwrap();
        granted(claim.attempt(Wait::No).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        replace_primary(&group);
        follow_new_primary(&group).await;
        let old = &group.servers()[0];
        old.ask(["CONFIG", "SET", "min-replicas-to-write", least]).unwrap();
        old.ask(["CLIENT", "KILL", "TYPE", "replica"]).unwrap();

        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        granted(claim.attempt(Wait::No).await);
        assert_eq!(group.servers()[1].ask(["EXISTS", &lock_key("a")]).unwrap().text(), "1");
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

/// All connections go to a primary that hangs: those that waited for replicas, and the one for all
/// else.
#[tokio::test]
async fn c7_c9_connections_to_a_primary_that_was_replaced_are_left_together() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    let redis = connect(&format!("{}?wait_replicas=1", group.url())).await.unwrap();
    let claim = |name: String| redis.claim(spec(&name)).unwrap();
    let mut claims: Vec<_> = (0..8).map(|number| claim(format!("a{number}"))).collect();
    for answer in join_all(claims.iter_mut().map(|claim| claim.attempt(Wait::No))).await {
        granted(answer);
    }
    for claim in &mut claims {
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    group.servers()[0].pause().unwrap();
    replace_primary(&group);
    follow_new_primary(&group).await;

    let mut given_up = claim("b".to_owned());
    assert!(timeout(Duration::from_millis(200), given_up.attempt(Wait::No)).await.is_err());
    let mut next = claim("c".to_owned());
    granted(
        timeout(SOON, next.attempt(Wait::No)).await.expect("each old connection is waited for"),
    );
    let released =
        timeout(SOON, next.release()).await.expect("the release went to the old primary");
    assert_eq!(released.unwrap(), Released::Freed);
    assert_eq!(group.servers()[1].ask(["EXISTS", &lock_key("c")]).unwrap().text(), "0");
}

#[tokio::test]
async fn c13_a_primary_that_may_evict_is_refused_when_strict() {
    let servers = RedisOptions::default().with_args(["--maxmemory-policy", "allkeys-lru"]);
    let group = SentinelGroup::start_with(calm().with_servers(servers)).unwrap();
    let error = connect(&format!("{}?strict=true", group.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    connect(&group.url()).await.unwrap();
}
