//! Tests lists of names, and probes of the server.

use std::{collections::BTreeSet, num::NonZeroU32};

use lockkit_core::{
    ErrorKind, Kind, LockName, OwnerId,
    spi::{Admin as _, Backend as _, ClaimSpec, Mode, Role, Wait},
};
use lockkit_fixture::claims::given_up;
use lockkit_redis::Redis;

use crate::support::*;

async fn names(redis: &Redis, kind: Kind, prefix: &str) -> BTreeSet<String> {
    let names = redis.names(kind, prefix).await.unwrap();
    let set: BTreeSet<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(set.len(), names.len(), "twice: {names:?}");
    assert!(names.iter().all(|name| name.kind() == kind));
    set
}

fn set<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

fn semaphore(name: &str, limit: u32) -> ClaimSpec {
    let mode = Mode::Permits { count: NonZeroU32::MIN, limit: NonZeroU32::new(limit).unwrap() };
    ClaimSpec::new(
        LockName::new(Kind::Semaphore, name).unwrap(),
        OwnerId::random(),
        mode,
        TTL,
        OP_TIMEOUT,
    )
}

#[tokio::test]
async fn c14_only_names_in_use_of_this_kind_and_prefix_are_listed() {
    let store = Store::start().await;
    let url = store.server.url();
    let others = [
        connect(&format!("{url}?prefix=lockkit:mutex")).await.unwrap(),
        connect(&format!("{url}?prefix=lockki*")).await.unwrap(),
        connect(&format!("{url}?keys=raw&prefix=raw")).await.unwrap(),
    ];
    let mut held = vec![holder(&store, "a").await, holder(&store, "b").await];
    for other in &others {
        let mut claim = other.claim(spec("theirs")).unwrap();
        granted(claim.attempt(Wait::No).await);
        held.push(claim);
    }
    given_up(holder(&store, "idle").await.release()).await;
    for key in [
        "lockkit",
        "lockkit:mutex:{",
        "lockkit:mutex:{}",
        "lockkit:mutex:{x}y",
        "lockkit:mutex:{%zz}",
        "lockkit:mutex:{x}:else",
    ] {
        store.admin.ask::<()>(&["SET", key, ""]).await;
    }
    // A text of 256 bytes is no name.
    store.admin.ask::<()>(&["SET", &lock_key(&"x".repeat(256)), ""]).await;
    assert_eq!(names(&store.redis, Kind::Mutex, "").await, set(["a", "b"]));
    assert_eq!(names(&others[0], Kind::Mutex, "").await, set(["theirs"]));
    assert_eq!(names(&others[1], Kind::Mutex, "the").await, set(["theirs"]));
    for kind in [Kind::Election, Kind::RwLock, Kind::Semaphore] {
        assert_eq!(names(&store.redis, kind, "").await, set([]));
    }
    assert!(!others[2].descriptor().capabilities.names);
    assert_eq!(others[2].names(Kind::Mutex, "").await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn c14_names_that_are_only_waited_for_are_listed_and_those_of_the_dead_are_not() {
    let store = Store::start().await;
    store.admin.ask::<()>(&["SET", &lock_key("foreign"), "another program"]).await;
    let (mut waiter, _signal) = store.waiter("foreign");
    busy(waiter.attempt(Wait::Queue).await);
    let mut permit = store.redis.claim(semaphore("s", 1)).unwrap();
    granted(permit.attempt(Wait::No).await);
    let mut second = store.redis.claim(semaphore("s", 1)).unwrap();
    busy(second.attempt(Wait::Queue).await);
    let both = async || {
        let (mutexes, semaphores) = tokio::join!(
            names(&store.redis, Kind::Mutex, ""),
            names(&store.redis, Kind::Semaphore, "")
        );
        (mutexes, semaphores)
    };
    assert_eq!(both().await, (set(["foreign"]), set(["s"])));
    // Now the names have waiters and no holders.
    let [holders, grants] =
        ["holders", "grants"].map(|part| format!("lockkit:semaphore:{{s}}:{part}"));
    store.admin.ask::<()>(&["DEL", &lock_key("foreign"), &holders, &grants]).await;
    assert_eq!(both().await, (set(["foreign"]), set(["s"])));
    // Now the waiters are dead.
    for key in [live_key("foreign"), "lockkit:semaphore:{s}:live".to_owned()] {
        let members: Vec<String> = store.admin.ask(&["ZRANGE", &key, "0", "-1"]).await;
        store.admin.ask::<()>(&["ZADD", &key, "XX", "1", &members[0]]).await;
    }
    assert_eq!(both().await, (set([]), set([])));
    // One lease has lapsed, beside a longer one that was given back.
    let mut long = store.redis.claim(semaphore("t", 2)).unwrap();
    let mut short = store.redis.claim(semaphore("t", 2)).unwrap();
    granted(long.attempt(Wait::No).await);
    granted(short.attempt(Wait::No).await);
    given_up(long.release()).await;
    let holders = "lockkit:semaphore:{t}:holders";
    let left: Vec<String> = store.admin.ask(&["ZRANGE", holders, "0", "-1"]).await;
    store.admin.ask::<()>(&["ZADD", holders, "XX", "1", &left[0]]).await;
    assert_eq!(names(&store.redis, Kind::Semaphore, "").await, set([]));
    // A key that is in the way is not hidden.
    store.admin.ask::<()>(&["SET", "lockkit:semaphore:{u}:holders", ""]).await;
    assert_eq!(names(&store.redis, Kind::Semaphore, "").await, set(["u"]));
}

#[tokio::test]
async fn c14_many_names_are_listed_page_by_page() {
    let store = Store::start().await;
    let all: BTreeSet<_> = (0..3000).map(|n| format!("job {n}")).collect();
    for name in &all {
        store.admin.ask::<()>(&["SET", &lock_key(name), "x", "EX", "600"]).await;
    }
    store.admin.reset_calls().await;
    assert_eq!(names(&store.redis, Kind::Mutex, "job").await, all);
    let pages = store.admin.calls("scan").await;
    assert!((5..=40).contains(&pages), "{pages}");
    assert_eq!(store.admin.requests().await, 0);
}

#[tokio::test]
async fn c13_a_list_without_the_right_to_scan_is_refused_and_nothing_else_is() {
    let store = Store::start().await;
    store.admin.ask::<()>(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-scan"]).await;
    let redis = connect(&format!("redis://u:p@127.0.0.1:{}/", store.server.port())).await.unwrap();
    let error = redis.names(Kind::Mutex, "").await.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::PermissionDenied, false));
    assert!(error.to_string().contains("+scan"), "{error}");
    assert_eq!(redis.probe().await.unwrap(), Role::Primary);
}

#[tokio::test]
async fn c14_a_health_check_reports_the_role_and_leaves_nothing() {
    let store = Store::start().await;
    store.admin.reset_calls().await;
    assert_eq!(store.redis.probe().await.unwrap(), Role::Primary);
    assert_eq!((store.admin.calls("role").await, store.admin.requests().await), (1, 0));
    assert!(store.admin.keys().await.is_empty());
    store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    assert_eq!(store.redis.probe().await.unwrap(), Role::Replica);
    store.admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    store.admin.ask::<()>(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-role"]).await;
    let redis = connect(&format!("redis://u:p@127.0.0.1:{}/", store.server.port())).await.unwrap();
    assert_eq!(redis.probe().await.unwrap(), Role::Unknown);
    // This server answers, and can't be used.
    store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    store.admin.ask::<()>(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
    let error = store.redis.probe().await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
}

#[tokio::test]
async fn c14_a_list_of_raw_keys_is_refused_with_the_reason() {
    let server = lockkit_fixture::RedisServer::start().unwrap();
    let mut registry = lockkit_core::Registry::new();
    lockkit_redis::register(&mut registry);
    let locker =
        registry.connect(&format!("{}?keys=raw&connect_timeout=30s", server.url())).await.unwrap();
    let error = locker.names("").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("keys=raw"), "{error}");
}
