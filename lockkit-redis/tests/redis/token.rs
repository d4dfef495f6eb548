//! Tests that the fencing token rises, whatever happens to the counter.

use lockkit_core::{
    ErrorKind, Kind, LockName,
    spi::{Backend as _, Released, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::time::timeout;

use crate::support::*;

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
        Some(vec!["DEL", "lockkit:token"]),
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
async fn c4_a_token_ahead_of_the_clock_rises_by_one_and_is_kept() {
    let store = Store::start().await;
    let now = next_token(&store).await;
    // It looks as if the server's clock had been 10 days ahead.
    let future = now + 10 * 24 * 3_600 * 1_000_000;
    store.admin.ask::<()>(&["SET", &counter_key(), &future.to_string()]).await;
    let mut claim = store.claim("a");
    assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), future + 1);
    claim.renew(None).await.unwrap();
    given_up(claim.release()).await;
    assert_eq!(next_token(&store).await, future + 2);
    assert_eq!(store.admin.ask::<i64>(&["PTTL", &counter_key()]).await, -1);
}

#[tokio::test]
async fn c4_tokens_of_all_names_and_kinds_rise_together() {
    let store = Store::start().await;
    let mut last = 0;
    for (name, kind) in
        [("a", Kind::Mutex), ("b", Kind::Mutex), ("a", Kind::RwLock), ("a", Kind::Election)]
    {
        let mut spec = spec(name);
        spec.name = LockName::new(kind, name).unwrap();
        let mut claim = store.redis.claim(spec).unwrap();
        let token = granted(claim.attempt(Wait::No).await).token.get();
        assert!(token > last, "{kind} {name}: {token} after {last}");
        assert_eq!(store.admin.ask::<u64>(&["GET", &counter_key()]).await, token);
        last = token;
    }
}

#[tokio::test]
async fn c4_the_largest_token_is_an_error_and_leaves_no_lock() {
    let store = Store::start().await;
    for (last, ends) in
        [("9007199254740990", false), ("9007199254740991", true), ("99999999999999999999999", true)]
    {
        store.admin.ask::<()>(&["SET", &counter_key(), last]).await;
        let mut claim = store.claim("a");
        if !ends {
            assert_eq!(granted(claim.attempt(Wait::No).await).token.get(), 9_007_199_254_740_991);
            given_up(claim.release()).await;
            continue;
        }
        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert!(
            error.to_string().contains("2^53") && error.to_string().contains(&counter_key()),
            "{error}"
        );
        assert_eq!(store.admin.keys().await, [counter_key()]);
        assert_eq!(store.admin.ask::<String>(&["GET", &counter_key()]).await, last);
    }
}

#[tokio::test]
async fn c4_a_counter_with_nonsense_in_it_heals() {
    let store = Store::start().await;
    let before = next_token(&store).await;
    for nonsense in ["", "x", ":", "-5:x", "1e300:x"] {
        store.admin.ask::<()>(&["SET", &counter_key(), nonsense]).await;
        assert!(next_token(&store).await > before);
    }
}

#[tokio::test]
async fn c4_a_grant_keeps_its_token_over_the_loss_of_the_counter() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    let first = granted(claim.attempt(Wait::No).await).token;
    store.admin.ask::<()>(&["DEL", &counter_key()]).await;
    assert_eq!(granted(claim.attempt(Wait::No).await).token, first);
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
        let mut left = vec![lock_key("a"), counter_key(), key.clone()];
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
        assert_clean(&store).await;
    }
}

#[tokio::test]
async fn c13_a_key_of_another_type_is_an_error_that_leaves_nothing_set() {
    let store = Store::start().await;
    for key in [lock_key("a"), counter_key()] {
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
