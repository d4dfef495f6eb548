//! The primary that sentinels name.

use std::time::Duration;

use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Pulse, Released, Wait},
};
use lockkit_fixture::{RedisOptions, SentinelGroup, SentinelOptions};

use crate::support::*;

/// The sentinels leave all as it is.
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
    assert_eq!(group.servers()[0].ask(["WAIT", "2", "5000"]).unwrap().text(), "2");

    group.sentinels()[0].ask(["SENTINEL", "FAILOVER", group.service_name()]).unwrap();
    let primary = group.wait_for_new_primary(0, SOON).unwrap();
    let _ = holder.keep_alive().await;
    assert!(matches!(holder.keep_alive().await.unwrap(), Pulse::Alive(_)));
    assert_eq!(group.servers()[primary].ask(["EXISTS", &lock_key("a")]).unwrap().text(), "1");
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    let mut next = redis.claim(spec("a")).unwrap();
    assert!(granted(next.attempt(Wait::No).await).token > before);
}

#[tokio::test]
async fn c13_a_primary_that_was_demoted_is_left_for_the_one_that_the_sentinels_name() {
    let group = SentinelGroup::start_with(calm()).unwrap();
    let redis = connect(&group.url()).await.unwrap();
    let mut holder = redis.claim(spec("a")).unwrap();
    granted(holder.attempt(Wait::No).await);
    assert_eq!(group.servers()[0].ask(["WAIT", "2", "5000"]).unwrap().text(), "2");
    // As an operator does who has no sentinel cut the clients off.
    for sentinel in group.sentinels() {
        sentinel.ask(["SENTINEL", "REMOVE", group.service_name()]).unwrap();
    }
    group.servers()[1].promote().unwrap();
    // It keeps its data, as its new primary can't be reached.
    group.servers()[0].ask(["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let port = group.servers()[1].port().to_string();
    for sentinel in group.sentinels() {
        sentinel.ask(["SENTINEL", "MONITOR", group.service_name(), "127.0.0.1", &port, "2"]).unwrap();
    }
    let error = holder.keep_alive().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(matches!(holder.keep_alive().await.unwrap(), Pulse::Alive(_)));
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_a_primary_that_may_evict_is_refused_when_strict() {
    let servers = RedisOptions::default().with_args(["--maxmemory-policy", "allkeys-lru"]);
    let group = SentinelGroup::start_with(calm().with_servers(servers)).unwrap();
    let error = connect(&format!("{}?strict=true", group.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    connect(&group.url()).await.unwrap();
}
