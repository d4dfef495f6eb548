//! Tests a user with exactly the documented rights, and one with fewer.

use futures_util::future::join_all;
use lockkit_core::{
    ErrorKind, Kind, LockName, OwnerId,
    spi::{
        Admin as _, Attempt, Backend as _, ClaimSpec, Mode, Note, Noted, QueuePolicy, Released,
        RenewalOutcome, Role, Transferred, Wait,
    },
};
use lockkit_fixture::{RedisCluster, RedisClusterOptions, RedisServer};
use lockkit_redis::Redis;

use crate::support::*;

/// Reads the rights from the documentation of the crate.
fn rules(part: &str) -> Vec<String> {
    let documentation = include_str!("../../src/lib.rs");
    let after = documentation.split(&format!("//! # {part}\n")).nth(1).expect(part);
    let rules = after.lines().take_while(|line| !line.contains("```"));
    let words = rules.flat_map(|line| line.trim_start_matches("//! ").split_whitespace());
    words.map(str::to_owned).collect()
}

fn allow(server: &RedisServer, rules: &[String]) {
    let user = ["ACL", "SETUSER", "u", "reset", "on", ">hunter2"].map(str::to_owned);
    server.ask(user.iter().chain(rules)).unwrap();
}

fn as_user(url: &str) -> String {
    url.replace("://", "://u:hunter2@")
}

/// Does everything that a locker does, with each kind.
async fn exercise(redis: &Redis) {
    assert_eq!(redis.probe().await.unwrap(), Role::Primary);
    redis.time().await.unwrap();
    let limit = std::num::NonZeroU32::MIN;
    for (kind, mode) in [
        (Kind::Mutex, Mode::Exclusive),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
        (Kind::Semaphore, Mode::Permits { count: limit, limit }),
    ] {
        let name = LockName::new(kind, "a").unwrap();
        let spec = |mode| ClaimSpec::new(name.clone(), OwnerId::random(), mode, TTL, OP_TIMEOUT);
        let mut holder = redis.claim(spec(mode)).unwrap();
        let token = granted(holder.attempt(Wait::No).await).token;
        assert_eq!(holder.raise_token(token).await.unwrap(), Some(token));
        let floor = lockkit_core::FencingToken::new(token.get() + 1);
        assert_eq!(holder.raise_token(floor).await.unwrap(), Some(floor));
        assert!(matches!(holder.renew(Some(TTL * 2)).await.unwrap(), RenewalOutcome::Alive(_)));
        if kind == Kind::Mutex {
            let answer = holder.transfer(&spec(mode), QueuePolicy::TransferFirst).await.unwrap();
            assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
            let note = Note::default().next("a");
            assert_eq!(holder.write_note(&note).await.unwrap(), Noted::Written);
            assert_eq!(redis.note(&name).await.unwrap(), note);
        }
        assert_eq!(redis.names(kind, "").await.unwrap(), std::slice::from_ref(&name));
        if mode == Mode::Shared {
            let mut other = redis.claim(spec(mode)).unwrap();
            granted(other.attempt(Wait::No).await);
            assert_eq!(other.release().await.unwrap(), Released::Freed);
        }
        assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(redis.inspect(&name).await.unwrap().holders.len(), 1);
        // A reader waits only for a writer.
        let waits_as = if kind == Kind::RwLock { Mode::Exclusive } else { mode };
        let mut waiter = redis.claim(spec(waits_as)).unwrap();
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        let mut late = redis.claim(spec(mode)).unwrap();
        assert!(busy(late.attempt(Wait::Queue).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        loop {
            if let Attempt::Granted(grant) = waiter.attempt(Wait::Queue).await.unwrap() {
                assert_eq!(redis.force_release(&name, grant.token).await.unwrap(), Released::Freed);
                break;
            }
            tokio::task::yield_now().await;
        }
        while let Attempt::Busy { .. } = late.attempt(Wait::Queue).await.unwrap() {
            tokio::task::yield_now().await;
        }
        assert_eq!(late.release().await.unwrap(), Released::Freed);
    }
    exercise_batches(redis).await;
}

/// Acquires and releases so many locks that some of them are sent together.
async fn exercise_batches(redis: &Redis) {
    let mut crowd: Vec<_> =
        (0..50).map(|at| redis.claim(spec_of(&format!("a{at}"))).unwrap()).collect();
    for answer in join_all(crowd.iter_mut().map(|claim| claim.attempt(Wait::No))).await {
        granted(answer);
    }
    for released in join_all(crowd.iter_mut().map(|claim| claim.release())).await {
        assert_eq!(released.unwrap(), Released::Freed);
    }
}

fn spec_of(name: &str) -> ClaimSpec {
    let name = LockName::new(Kind::Mutex, name).unwrap();
    ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, TTL, OP_TIMEOUT)
}

fn denied(server: &RedisServer) -> Vec<String> {
    let log = server.ask(["ACL", "LOG"]).unwrap();
    log.elements().iter().map(|entry| entry.elements()[7].text()).collect()
}

#[tokio::test]
async fn c13_the_documented_rights_are_enough_and_none_is_too_much() {
    let server = RedisServer::start().unwrap();
    let documented = rules("One server");
    allow(&server, &documented);
    server.ask(["ACL", "LOG", "RESET"]).unwrap();
    let redis = connect(&as_user(&server.url())).await.unwrap();
    assert!(redis.descriptor().capabilities.push);
    exercise(&redis).await;
    assert_eq!(denied(&server), Vec::<String>::new());
    redis.close().await.unwrap();
    // Each right is used: without it, the server refuses a request.
    for (index, rule) in documented.iter().enumerate().filter(|(_, rule)| rule.starts_with('+')) {
        let mut fewer = documented.clone();
        fewer.remove(index);
        allow(&server, &fewer);
        server.ask(["ACL", "LOG", "RESET"]).unwrap();
        server.ask(["FLUSHALL"]).unwrap();
        server.ask(["SCRIPT", "FLUSH"]).unwrap();
        let url = as_user(&server.url());
        let trial = tokio::spawn(async move {
            if let Ok(redis) = connect(&url).await {
                exercise(&redis).await;
            }
        });
        let _ = trial.await;
        assert!(!denied(&server).is_empty(), "{rule} is not used");
    }
}

#[tokio::test]
async fn c13_the_documented_rights_are_enough_for_a_cluster() {
    let cluster = RedisCluster::start_with(RedisClusterOptions::default()).unwrap();
    let rules = [rules("One server"), rules("A cluster")].concat();
    for node in cluster.nodes() {
        allow(node, &rules);
        node.ask(["ACL", "LOG", "RESET"]).unwrap();
    }
    let redis = connect(&as_user(&cluster.url())).await.unwrap();
    exercise(&redis).await;
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    let slot = cluster.slot_of(&lock_key("a")).unwrap();
    let spec = ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, TTL, OP_TIMEOUT);
    let mut holder = redis.claim(spec).unwrap();
    granted(holder.attempt(Wait::No).await);
    let to = (cluster.owner_of(slot).unwrap() + 1) % 3;
    let migration = cluster.begin_migration(slot, to).unwrap();
    cluster.move_keys(&migration).unwrap();
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    cluster.finish_migration(migration).unwrap();
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    for node in cluster.nodes() {
        assert_eq!(denied(node), Vec::<String>::new());
    }
}

#[tokio::test]
async fn c13_without_rights_on_channels_or_hello_waiters_poll() {
    let server = RedisServer::start().unwrap();
    for without in [
        &["resetchannels"][..],
        &["-subscribe"],
        &["-publish"],
        &["-hello"],
        &["-spublish", "-command|info"],
    ] {
        let all =
            rules("One server").into_iter().chain(without.iter().map(|&rule| rule.to_owned()));
        allow(&server, &all.collect::<Vec<_>>());
        let redis = connect(&as_user(&server.url())).await.unwrap();
        exercise(&redis).await;
        redis.close().await.unwrap();
    }
}

#[tokio::test]
async fn c13_a_cluster_without_rights_on_channels_is_polled() {
    let cluster = RedisCluster::start().unwrap();
    for without in [&["resetchannels"][..], &["-ssubscribe"], &["-spublish"], &["-command|info"]] {
        let mut all = [rules("One server"), rules("A cluster")].concat();
        all.extend(without.iter().map(|&rule| rule.to_owned()));
        for node in cluster.nodes() {
            allow(node, &all);
        }
        let redis = connect(&as_user(&cluster.url())).await.unwrap();
        exercise(&redis).await;
        redis.close().await.unwrap();
    }
    for node in cluster.nodes() {
        allow(node, &["~*", "&*", "+@all", "-cluster"].map(str::to_owned));
    }
    let error = connect(&as_user(&cluster.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("+cluster|slots"), "{error}");
}

#[tokio::test]
async fn a_database_number_keeps_locks_apart() {
    let server = RedisServer::start().unwrap();
    for url in
        [format!("{}3", server.url()), format!("redis+unix://{}?db=4", server.socket().display())]
    {
        let redis = connect(&url).await.unwrap();
        let mut claim = redis.claim(spec("a")).unwrap();
        granted(claim.attempt(Wait::No).await);
    }
    let databases = server.ask(["INFO", "keyspace"]).unwrap().text();
    assert!(databases.contains("db3:keys=3") && databases.contains("db4:keys=3"), "{databases}");
}
