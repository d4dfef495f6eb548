//! Tests that the fencing token rises, whatever happens to its key.

use std::time::Duration;

use lockkit_core::{
    ErrorKind,
    spi::{Attempt, Released, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::time::timeout;

use crate::support::*;

const DAY: i64 = 86_400_000;

async fn next_token(store: &Store) -> u64 {
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token.get();
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    token
}

#[tokio::test]
async fn c4_tokens_rise_over_grants_and_over_the_loss_of_all_data() {
    let mut store = Store::start().await;
    let mut last = 0;
    for loss in [
        None,
        Some(vec!["DEL", "lockkit:mutex:{a}:fence"]),
        Some(vec!["FLUSHALL"]),
        Some(vec!["SCRIPT", "FLUSH"]),
    ] {
        if let Some(words) = &loss {
            store.admin.ask::<()>(words).await;
        }
        for _ in 0..50 {
            let token = next_token(&store).await;
            assert!(token > last, "{token} after {last}, {loss:?}");
            last = token;
        }
    }
    store.server.restart().unwrap();
    let mut claim = store.claim("a");
    let attempt = async {
        loop {
            match claim.attempt(Wait::No).await {
                // The attempt found the old connection.
                Err(error) if error.is_temporary() => {}
                attempt => break attempt,
            }
        }
    };
    assert!(granted(timeout(SOON, attempt).await.unwrap()).token.get() > last);
}

#[tokio::test]
async fn c4_a_token_ahead_of_the_clock_rises_by_one_and_is_kept_past_its_own_time() {
    let store = Store::start().await;
    let now = next_token(&store).await;
    // It looks as if the server's clock had been 10 days ahead.
    let future = now + 10 * 24 * 3_600 * 1_000_000;
    store
        .admin
        .ask::<()>(&["SET", &fence_key("a"), &format!("{future}:somebody"), "EX", "60"])
        .await;
    let mut claim = store.claim("a");
    assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), future + 1);
    let kept: i64 = store.admin.ask(&["PTTL", &fence_key("a")]).await;
    assert!(kept > 11 * DAY - 60_000, "{kept}");
    claim.renew(None).await.unwrap();
    let kept: i64 = store.admin.ask(&["PTTL", &fence_key("a")]).await;
    assert!(kept > 11 * DAY - 60_000, "{kept}");
    given_up(claim.release()).await;
    assert_eq!(next_token(&store).await, future + 2);
}

#[tokio::test]
async fn c4_the_token_outlives_a_lock_that_is_renewed_for_days() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    let kept: i64 = store.admin.ask(&["PTTL", &fence_key("a")]).await;
    assert!(kept > DAY, "{kept}");
    store.admin.ask::<()>(&["EXPIRE", &fence_key("a"), "60"]).await;
    claim.renew(None).await.unwrap();
    let kept: i64 = store.admin.ask(&["PTTL", &fence_key("a")]).await;
    assert!(kept > DAY, "{kept}");
}

/// A lock is handed over for a claim window, and then claimed for a whole ttl.
#[tokio::test]
async fn c4_the_token_outlives_a_lock_that_was_handed_over_and_is_never_renewed() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let long = Duration::from_millis(DAY.unsigned_abs());
    let (mut waiter, signal) = waiter_for(&store, spec_for("a", long, OP_TIMEOUT));
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    given_up(holder.release()).await;
    signal.heard().await;
    // On a new connection, the message proves nothing: the waiter asks.
    kill_clients(&store).await;
    let look = async {
        loop {
            if let Ok(Attempt::Granted(grant)) = waiter.attempt(Wait::Queue).await {
                break grant;
            }
        }
    };
    let grant = timeout(SOON, look).await.expect("not granted");
    assert_eq!(lasts(grant.lease), long);
    let kept: i64 = store.admin.ask(&["PTTL", &fence_key("a")]).await;
    assert!(kept > 2 * DAY - 60_000, "{kept}");
}

#[tokio::test]
async fn c4_a_token_at_its_end_is_an_error_of_its_own_and_leaves_no_lock() {
    let store = Store::start().await;
    for (fence, ends) in
        [("9007199254740990", false), ("9007199254740991", true), ("99999999999999999999999", true)]
    {
        let value = format!("{fence}:somebody");
        store.admin.ask::<()>(&["SET", &fence_key("a"), &value]).await;
        let mut claim = store.claim("a");
        if !ends {
            assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), 9_007_199_254_740_991);
            given_up(claim.release()).await;
            continue;
        }
        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert!(
            error.to_string().contains("2^53") && error.to_string().contains(&fence_key("a")),
            "{error}"
        );
        assert_eq!(store.admin.keys().await, [fence_key("a")]);
        assert_eq!(store.admin.ask::<String>(&["GET", &fence_key("a")]).await, value);
    }
}

#[tokio::test]
async fn c4_a_fence_key_with_nonsense_in_it_heals() {
    let store = Store::start().await;
    let before = next_token(&store).await;
    for nonsense in ["", "x", ":", "-5:x", "1e300:x"] {
        store.admin.ask::<()>(&["SET", &fence_key("a"), nonsense]).await;
        assert!(next_token(&store).await > before);
    }
}

#[tokio::test]
async fn c4_a_grant_whose_token_was_evicted_before_its_reply_was_seen_gets_a_larger_one() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    let first = granted(claim.attempt(Wait::No).await).token;
    store.admin.ask::<()>(&["DEL", &fence_key("a")]).await;
    assert!(granted(claim.attempt(Wait::No).await).token > first);
}

#[tokio::test]
async fn c4_a_claim_whose_lease_lapsed_before_its_retry_gets_a_new_token() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    let first = granted(claim.attempt(Wait::No).await).token;
    store.admin.ask::<()>(&["DEL", &lock_key("a")]).await;
    assert!(granted(claim.attempt(Wait::No).await).token > first);
}

#[tokio::test]
async fn c13_a_queue_of_another_type_is_an_error_that_leaves_nothing_without_an_end() {
    let store = Store::start().await;
    for key in [queue_key("a"), live_key("a")] {
        let mut holder = holder(&store, "a").await;
        store.admin.ask::<()>(&["RPUSH", &key, "x"]).await;
        let mut waiter = store.claim("a");
        let error = waiter.attempt(Wait::Queue).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(!error.is_outcome_unknown() && !error.is_temporary(), "{error}");
        let mut left = vec![lock_key("a"), fence_key("a"), key.clone()];
        left.sort();
        assert_eq!(store.admin.keys().await, left);
        // No claim gets the lock by a way around the queue, and the lock does not stay either.
        if key == queue_key("a") {
            assert_eq!(holder.release().await.unwrap_err().kind(), ErrorKind::WrongType);
            assert_eq!(waiter.attempt(Wait::Queue).await.unwrap_err().kind(), ErrorKind::WrongType);
        } else {
            assert_eq!(holder.release().await.unwrap(), Released::Freed);
        }
        assert_eq!(store.admin.ask::<u64>(&["EXISTS", &lock_key("a")]).await, 0);
        store.admin.ask::<()>(&["DEL", &key]).await;
        granted(waiter.attempt(Wait::Queue).await);
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        assert_clean(&store, "a").await;
    }
}

#[tokio::test]
async fn c13_a_key_of_another_type_is_an_error_that_leaves_nothing_set() {
    let store = Store::start().await;
    for key in [lock_key("a"), fence_key("a")] {
        store.admin.ask::<()>(&["RPUSH", &key, "x"]).await;
        let mut claim = store.claim("a");
        let error = claim.attempt(Wait::Queue).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert!(!error.is_outcome_unknown() && !error.is_temporary(), "{error}");
        assert_eq!(store.admin.keys().await, [&*key]);
        assert_eq!(store.admin.ask::<u64>(&["LLEN", &key]).await, 1);
        store.admin.ask::<()>(&["DEL", &key]).await;
    }
}
