//! Tests that data of a newer lockkit are refused and left as they are.

use std::num::NonZeroU32;

use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, OwnerId,
    spi::{Admin as _, Backend as _, Mode, Note, QueuePolicy, Released, RenewalOutcome, Wait},
};

use tokio::time::timeout;

use super::claim_of;
use crate::support::*;

fn assert_newer(error: &Error, key: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{text}");
    assert!(text.contains("a newer lockkit wrote") && text.contains(key), "{text}");
    assert!(!text.contains("choose another"), "{text}");
    assert!(!error.is_temporary(), "{text}");
}

fn modes() -> [(Kind, Mode); 5] {
    let one = Mode::Permits { count: NonZeroU32::MIN, limit: NonZeroU32::MIN };
    [
        (Kind::Mutex, Mode::Exclusive),
        (Kind::Election, Mode::Exclusive),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
        (Kind::Semaphore, one),
    ]
}

/// The data that a newer format may have in the keys that are known here: nothing, or anything of
/// the same types.
fn kept(kind: Kind) -> [String; 2] {
    let base = format!("lockkit:{kind}:{{orders}}");
    let mark =
        format!("string lockkit:token lockkit/2:4102444800000007:x\nhash {base}:of-format-2 a b");
    let others = match kind {
        Kind::Mutex | Kind::Election => format!("string {base} 2:000000000000000000000000000000a1"),
        _ => format!("hash {base}:grants used 7 limit 9 x y\nzset {base}:holders 12 x"),
    };
    let waits = format!("zset {base}:queue 12 x\nzset {base}:live 12 x");
    [mark.clone(), format!("{mark}\n{others}\n{waits}")]
}

#[tokio::test]
async fn c1_c13_data_of_a_newer_lockkit_is_refused_and_not_changed() {
    for (kind, mode) in modes() {
        for (dump, listed) in kept(kind).into_iter().zip([false, true]) {
            let store = Store::start().await;
            store.admin.load(&dump).await;
            let before = store.admin.dump().await;
            let spec = || claim_of(kind, mode, OwnerId::random());
            let name = spec().name;
            let key = counter_key();
            for wait in [Wait::No, Wait::Queue] {
                let mut claim = store.redis.claim(spec()).unwrap();
                let error = claim.attempt(wait).await.unwrap_err();
                assert_newer(&error, &key);
                assert!(!error.is_outcome_unknown(), "{error}");
                assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
            }
            assert_newer(&store.redis.inspect(&name).await.unwrap_err(), &key);
            let token = FencingToken::new(4_102_444_800_000_007);
            assert_newer(&store.redis.force_release(&name, token).await.unwrap_err(), &key);
            let names = store.redis.names(kind, "").await.unwrap();
            assert_eq!(names, listed.then_some(name).into_iter().collect::<Vec<_>>());
            assert_eq!(store.admin.dump().await, before);
            for line in before.iter().filter(|line| !line.contains(":keys ")) {
                let left: i64 = store.admin.ask(&["PTTL", line.split(' ').nth(1).unwrap()]).await;
                assert!((3_500_000..=3_600_000).contains(&left), "{line}: {left}");
            }
        }
    }
}

/// No newer lockkit may take over a held name. If one does, its mark stays all the same, and the
/// holder gives back its lock.
#[tokio::test]
async fn c4_a_holder_whose_name_was_taken_over_by_a_newer_lockkit_writes_no_token_over_the_mark() {
    for (kind, mode) in modes() {
        let store = Store::start().await;
        let mut claim = store.redis.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
        let token = granted(claim.attempt(Wait::No).await).token;
        let wanted = if kind == Kind::Semaphore { mode } else { Mode::Exclusive };
        let mut waiter = store.redis.claim(claim_of(kind, wanted, OwnerId::random())).unwrap();
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        let key = counter_key();
        let mark = "lockkit/2:x";
        store.admin.ask::<()>(&["SET", &key, mark]).await;
        let floor = FencingToken::new(token.get() + 1_000_000_000);
        assert_newer(&claim.raise_token(floor).await.unwrap_err(), &key);
        if matches!(kind, Kind::Mutex | Kind::Election) {
            let successor = claim_of(kind, mode, OwnerId::random());
            assert_newer(
                &claim.transfer(&successor, QueuePolicy::QueueFirst).await.unwrap_err(),
                &key,
            );
        }
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        assert_eq!(store.admin.ask::<String>(&["GET", &key]).await, mark);
    }
}

#[tokio::test]
async fn c10_a_holder_whose_name_was_taken_over_by_a_newer_lockkit_renews_and_leaves_the_mark() {
    for (kind, mode) in modes() {
        let store = Store::start().await;
        let mut claim = store.redis.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
        granted(claim.attempt(Wait::No).await);
        let key = counter_key();
        let mark = "lockkit/2:x";
        for (life, least, most) in [(&[][..], -1, -1), (&["EX", "3600"], 3_500_000, 3_600_000)] {
            store.admin.ask::<()>(&[&["SET", &key, mark], life].concat()).await;
            let renewed = claim.renew(None).await.unwrap();
            assert!(matches!(renewed, RenewalOutcome::Alive(_)), "{kind}: {renewed:?}");
            let left: i64 = store.admin.ask(&["PTTL", &key]).await;
            assert!((least..=most).contains(&left), "{kind}: {left}");
            assert_eq!(store.admin.ask::<String>(&["GET", &key]).await, mark);
        }
    }
}

/// The request that keeps the waiters of a client alive also looks before it writes.
#[tokio::test]
async fn c13_a_waiter_writes_nothing_to_a_name_that_was_taken_over_by_a_newer_lockkit() {
    for (kind, mode) in modes() {
        let store = Store::start().await;
        let mut holder = store.redis.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
        granted(holder.attempt(Wait::No).await);
        let wanted = if kind == Kind::Semaphore { mode } else { Mode::Exclusive };
        let (mut waiter, signal) = waiter_for(&store, claim_of(kind, wanted, OwnerId::random()));
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        store.admin.load(&kept(kind)[1]).await;
        let before = store.admin.dump().await;
        let answer = timeout(SOON, wait_for_long_or_err(&mut waiter, &signal)).await;
        assert_eq!(store.admin.dump().await, before);
        assert_newer(&answer.expect("it waits on").unwrap_err(), &counter_key());
        for line in before.iter().filter(|line| !line.contains(":keys ")) {
            let left: i64 = store.admin.ask(&["PTTL", line.split(' ').nth(1).unwrap()]).await;
            assert!((3_500_000..=3_600_000).contains(&left), "{line}: {left}");
        }
    }
}

/// The operator follows docs/operations.md, once every process has stopped.
#[tokio::test]
async fn c4_c13_tokens_continue_from_the_number_that_an_operator_writes_over_a_mark() {
    const LAST: u64 = 4_102_444_800_000_007;
    for (kind, mode) in modes() {
        let store = Store::start().await;
        store.admin.load(&kept(kind)[1]).await;
        let counter = counter_key();
        for key in store.admin.keys().await.into_iter().filter(|key| *key != counter) {
            store.admin.ask::<()>(&["DEL", &key]).await;
        }
        store.admin.ask::<()>(&["SET", &counter, &LAST.to_string()]).await;
        let mut claim = store.redis.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
        assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), LAST + 1);
        assert_eq!(store.admin.ask::<i64>(&["PTTL", &counter]).await, -1);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

/// These calls look at the counter only to find a mark.
#[tokio::test]
async fn c7_c14_a_counter_of_another_type_stops_no_release_and_no_operator() {
    for (kind, mode) in modes() {
        let is_counted = matches!(kind, Kind::RwLock | Kind::Semaphore);
        for by_force in [false, true] {
            let store = Store::start().await;
            let mut claim = store.redis.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
            let token = granted(claim.attempt(Wait::No).await).token;
            let key = counter_key();
            store.admin.ask::<()>(&["DEL", &key]).await;
            store.admin.ask::<()>(&["LPUSH", &key, "x"]).await;
            let name = claim_of(kind, mode, OwnerId::random()).name;
            if is_counted {
                assert_eq!(store.redis.inspect(&name).await.unwrap().holders.len(), 1);
            }
            if by_force && is_counted {
                let freed = store.redis.force_release(&name, token).await;
                assert_eq!(freed.unwrap(), Released::Freed);
            } else {
                assert_eq!(claim.release().await.unwrap(), Released::Freed);
            }
        }
    }
}

/// A waiter that looks after the queue when a lease has lapsed does not give the lock away either.
#[tokio::test]
async fn c1_c4_a_waiter_whose_name_was_taken_over_by_a_newer_lockkit_gets_the_error() {
    for (kind, mode) in modes() {
        let store = Store::start().await;
        let mut claim = store.redis.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
        granted(claim.attempt(Wait::No).await);
        let wanted = if kind == Kind::Semaphore { mode } else { Mode::Exclusive };
        let (mut waiter, signal) = waiter_for(&store, claim_of(kind, wanted, OwnerId::random()));
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        let key = counter_key();
        let mark = "lockkit/2:x";
        store.admin.ask::<()>(&["SET", &key, mark]).await;
        store.end_leases(&claim_of(kind, mode, OwnerId::random()).name).await;
        let answer =
            timeout(SOON, wait_for_long_or_err(&mut waiter, &signal)).await.expect("it waits on");
        assert_newer(&answer.unwrap_err(), &key);
        assert_eq!(store.admin.ask::<String>(&["GET", &key]).await, mark);
    }
}

#[tokio::test]
async fn c5_c13_a_note_of_a_newer_lockkit_is_refused_and_not_changed() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    let key = "lockkit:mutex:{a}:note";
    store
        .admin
        .ask::<()>(&["HSET", key, "format", "2", "revision", "7", "text", "x", "more", "y"])
        .await;
    assert_newer(&store.redis.note(&mutex("a")).await.unwrap_err(), key);
    assert_newer(&claim.write_note(&Note::new(8, "y".to_owned())).await.unwrap_err(), key);
    let kept: Vec<String> =
        store.admin.ask(&["HMGET", key, "format", "revision", "text", "more"]).await;
    assert_eq!(kept, ["2", "7", "x", "y"]);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}
