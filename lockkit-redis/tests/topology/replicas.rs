//! Tests grants that replicas have to confirm.

use std::time::Duration;

use futures_util::future::join_all;
use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, OwnerId,
    spi::{
        Backend as _, ClaimSpec, GrantId, Mode, Note, Noted, QueuePolicy, Released, RenewalOutcome,
        Transferred, Wait,
    },
};
use lockkit_fixture::claims::{given_up, until};
use lockkit_fixture::{RedisOptions, RedisServer, valkey_server};
use tokio::time::timeout;

use crate::support::*;

const QUERY: &str = "?wait_replicas=1&wait_timeout=2s";

/// A primary with a backend on it, and a replica in sync.
async fn replicated(query: &str) -> (Store, RedisServer) {
    let store = Store::start_with(&[], query).await;
    let replica = RedisServer::start_replica_of(&store.server).unwrap();
    in_sync(&store).await;
    (store, replica)
}

/// Resumes a replica, and waits until it has all data.
async fn thaw(store: &Store, replica: &RedisServer) {
    replica.resume().unwrap();
    in_sync(store).await;
}

/// Right after its start, a replica confirms only once a second.
async fn in_sync(store: &Store) {
    store.admin.ask::<()>(&["SET", "thaw", ""]).await;
    assert_eq!(store.admin.ask::<u64>(&["WAIT", "1", "10000"]).await, 1);
}

fn has_lock(server: &RedisServer, name: &str) -> bool {
    server.ask(["EXISTS", &lock_key(name)]).unwrap().text() == "1"
}

#[tokio::test]
async fn c4_a_grant_that_a_replica_has_confirmed_is_there() {
    let (store, replica) = replicated("?wait_replicas=1&wait_timeout=60s").await;
    let mut claim = store.claim("a");
    for _ in 0..50 {
        granted(claim.attempt(Wait::No).await);
        assert!(has_lock(&replica, "a"), "granted before the replica had it");
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    granted(claim.attempt(Wait::No).await);
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    let (mut waiter, signal) = store.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);
    given_up(claim.release()).await;
    lock(&mut waiter, &signal).await;
    assert!(has_lock(&replica, "a"));
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c4_a_transfer_and_a_raised_token_count_once_a_replica_has_them() {
    let (store, replica) = replicated("?wait_replicas=1&wait_timeout=60s").await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    for _ in 0..50 {
        let to = spec("a");
        let answer = claim.transfer(&to, QueuePolicy::QueueFirst).await.unwrap();
        assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
        let there = replica.ask(["GET", &lock_key("a")]).unwrap().text();
        let given = there.ends_with(&format!(":{}", to.owner));
        assert!(given, "transferred before the replica knew: {there}");
    }
    let Transferred::Granted(grant) =
        claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap()
    else {
        panic!("not transferred")
    };
    let floor = FencingToken::new(grant.token.get() + 3_600_000_000);
    assert_eq!(claim.raise_token(floor).await.unwrap(), Some(floor));
    let there = replica.ask(["GET", &lock_key("a")]).unwrap().text();
    assert!(there.starts_with(&floor.to_string()), "{there}");
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c5_a_transfer_that_no_replica_confirms_is_undone_and_unknown() {
    let (store, replica) = replicated(QUERY).await;
    let mut claim = store.claim("a");
    for _ in 0..2 {
        let token = granted(claim.attempt(Wait::No).await).token;
        replica.pause().unwrap();
        let error = claim.raise_token(FencingToken::new(token.get() + 1)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, true),
            "{error}"
        );
        let error = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, true),
            "{error}"
        );
        assert!(error.to_string().contains("0 of 1 did within 2s"), "{error}");
        assert!(!has_lock(&store.server, "a"));
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        thaw(&store, &replica).await;
    }
}

#[tokio::test]
async fn c13_a_grant_that_a_frozen_replica_does_not_confirm_is_released() {
    let (store, replica) = replicated(QUERY).await;
    replica.pause().unwrap();
    // This is the first request of the connection, for which a WAIT of its own would count the
    // replica. The second request is one of many.
    let mut claim = store.claim("a");
    for _ in 0..2 {
        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, false),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("0 of 1 did within 2s"), "{text}");
        assert!(!has_lock(&store.server, "a"));
    }
    thaw(&store, &replica).await;
    granted(claim.attempt(Wait::No).await);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// Catches a resume that frees the lock, so that the ticket is used up in vain.
#[tokio::test]
async fn c5_a_resumed_grant_that_no_replica_confirms_stays_and_is_asked_for_again() {
    let (store, replica) = replicated(QUERY).await;
    let former = spec("a");
    let owner = former.owner;
    let mut former = store.redis.claim(former).unwrap();
    let token = granted(former.attempt(Wait::No).await).token;
    let mut heir = spec("a");
    heir.resumes = Some(Box::new(GrantId { owner, token }));
    let mut heir = store.redis.claim(heir).unwrap();
    replica.pause().unwrap();
    for _ in 0..2 {
        let error = heir.attempt(Wait::No).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, true),
            "{error}"
        );
        assert!(has_lock(&store.server, "a"));
    }
    thaw(&store, &replica).await;
    assert_eq!(granted(heir.attempt(Wait::No).await).token, token);
    assert_eq!(heir.release().await.unwrap(), Released::Freed);
    assert!(!has_lock(&store.server, "a"));
}

#[tokio::test]
async fn c5_a_note_that_no_replica_confirms_is_unknown_however_often_it_is_written() {
    note_without_confirmation(RedisOptions::default()).await;
    match valkey_server() {
        // Valkey counts all replicas for a connection that has written nothing.
        Some(program) => {
            note_without_confirmation(RedisOptions::default().with_program(program)).await
        }
        None => eprintln!("not tested on Valkey: there is no valkey-server"),
    }
}

async fn note_without_confirmation(options: RedisOptions) {
    let store = Store::on(RedisServer::start_as(options.clone()).unwrap(), QUERY).await;
    let replica = RedisServer::start_as(options.with_primary(store.server.port())).unwrap();
    replica.wait_in_sync().unwrap();
    in_sync(&store).await;
    let mut claim = store.claim("a");
    let first = Note::default().next("a");
    let text = |server: &RedisServer| {
        server.ask(["HGET", "lockkit:mutex:{a}:note", "text"]).unwrap().text()
    };
    granted(claim.attempt(Wait::No).await);
    assert_eq!(claim.write_note(&first).await.unwrap(), Noted::Written);
    assert_eq!(text(&replica), "a");
    replica.pause().unwrap();
    let second = first.next("b");
    for _ in 0..2 {
        // The first write may find that its connection was killed.
        let unconfirmed = async {
            loop {
                let error = claim.write_note(&second).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                if error.to_string().contains("a note needs replicas to confirm it") {
                    return error;
                }
            }
        };
        let error = timeout(SOON, unconfirmed).await.expect("it is not waited for replicas");
        assert!(error.is_outcome_unknown(), "{error}");
        assert_eq!(text(&store.server), "b");
        // The next write uses another connection.
        kill_clients(&store).await;
    }
    thaw(&store, &replica).await;
    assert_eq!(claim.write_note(&second).await.unwrap(), Noted::Written);
    assert_eq!(text(&replica), "b");
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_too_large_wait_replicas_is_an_error_with_both_numbers() {
    let (store, _replica) = replicated("?wait_replicas=2&wait_timeout=2s").await;
    let error = store.claim("a").attempt(Wait::No).await.unwrap_err();
    assert!(error.to_string().contains("1 of 2 did within 2s"), "{error}");
}

#[tokio::test]
async fn c10_a_renewal_that_no_replica_confirms_is_unknown() {
    let (store, replica) = replicated(QUERY).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    replica.pause().unwrap();
    for _ in 0..2 {
        let error = claim.renew(None).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, true),
            "{error}"
        );
    }
    thaw(&store, &replica).await;
    assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c10_many_renewals_wait_for_replicas_at_once() {
    let (store, replica) = replicated("?wait_replicas=1&wait_timeout=60s").await;
    let mut held = Vec::new();
    for number in 0..64 {
        let mut claim =
            store.redis.claim(spec_for(&format!("a{number}"), 60 * TTL, 4 * SOON)).unwrap();
        granted(claim.attempt(Wait::No).await);
        held.push(claim);
    }
    replica.pause().unwrap();
    let renewals = join_all(held.iter_mut().map(|claim| claim.renew(None)));
    let thawed = async {
        until("all renewals wait at once", async || {
            let clients: String = store.admin.ask(&["INFO", "clients"]).await;
            clients.contains("blocked_clients:64")
        })
        .await;
        thaw(&store, &replica).await;
    };
    let (outcomes, ()) = tokio::join!(renewals, thawed);
    for outcome in outcomes {
        assert!(matches!(outcome.unwrap(), RenewalOutcome::Alive(_)));
    }
}

#[tokio::test]
async fn c5_an_unconfirmed_grant_that_can_not_be_released_is_unknown() {
    let (store, replica) = replicated("").await;
    let rules = ["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-del"];
    store.admin.ask::<()>(&rules).await;
    let url = format!("redis://u:p@127.0.0.1:{}/{QUERY}", store.server.port());
    let redis = connect(&url).await.unwrap();
    replica.pause().unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.is_outcome_unknown()),
        (ErrorKind::Unavailable, true),
        "{error}"
    );
    assert!(has_lock(&store.server, "a"));
    store.admin.ask::<()>(&["ACL", "SETUSER", "u", "+del"]).await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_a_primary_that_is_demoted_while_replicas_are_waited_for_is_a_temporary_trouble() {
    let (store, replica) = replicated("?wait_replicas=1&wait_timeout=60s").await;
    let spec = || spec_for("a", TTL, SOON);
    let mut holder = store.redis.claim(spec()).unwrap();
    let mut other = store.redis.claim(spec_for("b", TTL, SOON)).unwrap();
    granted(holder.attempt(Wait::No).await);
    replica.pause().unwrap();
    let demote = async {
        until("both requests wait for the replica", async || {
            let connections: String = store.admin.ask(&["CLIENT", "LIST"]).await;
            let clients: String = store.admin.ask(&["INFO", "clients"]).await;
            connections.matches("cmd=wait").count() >= 2 && !clients.contains("blocked_clients:0")
        })
        .await;
        store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    };
    let (renewal, grant, ()) = tokio::join!(holder.renew(None), other.attempt(Wait::No), demote);
    for error in [renewal.unwrap_err(), grant.unwrap_err()] {
        assert!(error.is_temporary(), "{error:?}");
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, true),
            "{error}"
        );
    }
}

#[tokio::test]
async fn c6_an_attempt_dropped_while_it_waits_for_replicas_delays_no_other() {
    let (store, replica) = replicated("?wait_replicas=1&wait_timeout=60s").await;
    replica.pause().unwrap();
    let mut dropped = Vec::new();
    // There are more attempts than connections for them.
    for round in 0..70 {
        let mut claim = store.claim(&format!("a{round}"));
        assert!(timeout(Duration::from_millis(20), claim.attempt(Wait::No)).await.is_err());
        dropped.push(claim);
    }
    thaw(&store, &replica).await;
    let mut other = store.claim("b");
    granted(timeout(SOON, other.attempt(Wait::No)).await.unwrap());
    for claim in dropped.iter_mut().chain([&mut other]) {
        // The attempts were sent on connections that are closed now, so a release is not final
        // before their time.
        let _ = claim.release().await;
    }
    assert_eq!(store.admin.ask::<u64>(&["EXISTS", &lock_key("a0"), &lock_key("b")]).await, 0);
}

/// Later versions have changed which writes a WAIT counts.
#[tokio::test]
async fn c10_valkey_confirms_only_what_was_written() {
    let Some(program) = valkey_server() else {
        eprintln!("not tested: there is no valkey-server");
        return;
    };
    let options = RedisOptions::default().with_program(program);
    let primary = RedisServer::start_as(options.clone()).unwrap();
    let admin = Admin::to(&primary).await;
    let replica = RedisServer::start_as(options.with_primary(primary.port())).unwrap();
    replica.wait_in_sync().unwrap();
    admin.ask::<()>(&["SET", "in sync", ""]).await;
    assert_eq!(admin.ask::<u64>(&["WAIT", "1", "10000"]).await, 1);
    let redis = connect(&format!("{}{QUERY}", primary.url())).await.unwrap();
    for (kind, mode) in [(Kind::Mutex, Mode::Exclusive), (Kind::RwLock, Mode::Shared)] {
        let claim = || {
            let name = LockName::new(kind, "a").unwrap();
            redis.claim(ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT)).unwrap()
        };
        let mut held = claim();
        granted(held.attempt(Wait::No).await);
        replica.pause().unwrap();
        for _ in 0..2 {
            let error = held.renew(None).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.is_outcome_unknown()),
                (ErrorKind::Unavailable, true),
                "{error}"
            );
        }
        given_up(held.release()).await;
        let mut fresh = claim();
        let error = fresh.attempt(Wait::No).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, false),
            "{error}"
        );
        replica.resume().unwrap();
        admin.ask::<()>(&["SET", "in sync", ""]).await;
        assert_eq!(admin.ask::<u64>(&["WAIT", "1", "10000"]).await, 1);
    }
}
