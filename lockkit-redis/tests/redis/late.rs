//! Tests requests that arrive after their owner gave up.

use lockkit_core::{
    ErrorKind,
    spi::{Claim, Released, Wait},
};
use lockkit_redis::redis::Value;
use tokio::time::timeout;

use crate::{scripts::exclusive, support::*};

/// Makes an attempt that is applied, and whose answer no caller waits for.
async fn unanswered(store: &Store, claim: &mut Box<dyn Claim>) {
    store.server.pause().unwrap();
    assert!(timeout(MOMENT, claim.attempt(Wait::Queue)).await.is_err());
    store.server.resume().unwrap();
    store.settle().await;
}

#[tokio::test]
async fn c5_a_request_that_comes_after_its_time_does_nothing() {
    let store = Store::start().await;
    let send = async |not_after: i64| {
        let lock = lock_key("a");
        let counter = counter_key();
        let queue = queue_key("a");
        let live = live_key("a");
        let not_after = not_after.to_string();
        let waiter = "client:3000:me";
        let keys = ["EVAL", exclusive::ACQUIRE, "4", &lock, &counter, &queue, &live];
        let args = ["me", "30000", &not_after, waiter, "1", "6000", "PUBLISH", "lockkit:wake:"];
        store.admin.ask::<Value>(&[&keys[..], &args].concat()).await
    };
    let late = |answer| {
        let Value::Array(answer) = answer else { panic!("{answer:?}") };
        let [Value::Int(2), Value::Int(now)] = answer[..] else { panic!("{answer:?}") };
        now
    };
    let now = late(send(1).await);
    assert!(store.admin.keys().await.is_empty());
    let now = late(send(now).await);
    assert!(store.admin.keys().await.is_empty());
    // Nor does the late attempt queue where the lock is taken.
    store.admin.ask::<()>(&["SET", &lock_key("a"), "somebody"]).await;
    late(send(now).await);
    assert_eq!(store.admin.keys().await, [lock_key("a")]);
    store.admin.ask::<()>(&["DEL", &lock_key("a")]).await;
    assert!(matches!(send(now + 60_000_000).await, Value::Int(token) if token > now));
}

#[tokio::test]
async fn c5_an_attempt_that_a_paused_server_finds_after_the_give_up_does_nothing() {
    let store = Store::start_with_clock().await;
    let mut claim = store.claim("a");
    store.server.pause().unwrap();
    assert!(timeout(MOMENT, claim.attempt(Wait::Queue)).await.is_err());
    // The server reads the attempt only after its time, by the server's own clock.
    store.pass(OP_TIMEOUT + WINDOW);
    store.server.resume().unwrap();
    store.settle().await;
    assert!(store.admin.keys().await.is_empty());
    // The claim can be used again.
    granted(claim.attempt(Wait::Queue).await);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c5_giving_up_undoes_an_attempt_that_was_applied() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    store.server.pause().unwrap();
    assert!(timeout(MOMENT, claim.attempt(Wait::Queue)).await.is_err());
    store.server.resume().unwrap();
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

#[tokio::test]
async fn c5_a_refused_attempt_does_not_hide_an_earlier_one_that_was_applied() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    for refusal in [ErrorKind::WrongType, ErrorKind::NewerFormat] {
        unanswered(&store, &mut claim).await;
        if refusal == ErrorKind::WrongType {
            store.admin.ask::<()>(&["DEL", &counter_key()]).await;
            store.admin.ask::<()>(&["RPUSH", &counter_key(), "x"]).await;
        } else {
            store.admin.ask::<()>(&["SET", &counter_key(), "lockkit/2"]).await;
        }
        let error = claim.attempt(Wait::Queue).await.unwrap_err();
        assert_eq!((error.kind(), error.is_outcome_unknown()), (refusal, false));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        store.admin.ask::<()>(&["DEL", &counter_key()]).await;
    }
}

#[tokio::test]
async fn c5_a_grant_whose_reply_was_lost_is_found_on_a_server_that_is_full_since() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    unanswered(&store, &mut claim).await;
    store.admin.ask::<()>(&["PEXPIRE", &lock_key("a"), "30000"]).await;
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    let lock: String = store.admin.ask(&["GET", &lock_key("a")]).await;
    let grant = granted(claim.attempt(Wait::Queue).await);
    assert!(lock.starts_with(&format!("{}:", grant.token)));
    assert_eq!(lasts(grant.lease), TTL);
    assert!(store.admin.ask::<u64>(&["PTTL", &lock_key("a")]).await > 30_000);
}

#[tokio::test]
async fn c5_asking_again_after_a_lost_reply_finds_the_grant() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    unanswered(&store, &mut claim).await;
    let lock: String = store.admin.ask(&["GET", &lock_key("a")]).await;
    let grant = granted(claim.attempt(Wait::Queue).await);
    assert!(lock.starts_with(&format!("{}:", grant.token)));
    assert_eq!(lasts(grant.lease), TTL);
}

#[tokio::test]
async fn c5_an_unknown_release_is_known_when_asked_again() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::Queue).await);
    store.server.pause().unwrap();
    assert!(timeout(MOMENT, claim.release()).await.is_err());
    store.server.resume().unwrap();
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    assert_eq!(store.admin.keys().await, [counter_key()]);
}
