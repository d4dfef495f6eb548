//! Tests other clients that lock with `SET key value NX PX`.

use std::time::Duration;

use lockkit_core::{
    ErrorKind, FencingToken,
    spi::{Backend as _, Released, Wait},
};
use lockkit_fixture::claims::given_up;

use crate::support::*;

#[tokio::test]
async fn c1_a_foreign_lock_is_respected_and_ours_is_seen() {
    for (query, key) in [
        ("", "lockkit:mutex:{jobs/7}"),
        ("?keys=raw", "jobs/7"),
        ("?prefix=p:q", "p:q:mutex:{jobs/7}"),
    ] {
        let store = Store::start_with(&[], query).await;
        let foreign =
            async || store.admin.ask::<Option<String>>(&["SET", key, "me", "NX", "EX", "60"]).await;
        assert!(foreign().await.is_some());
        let mut claim = store.claim("jobs/7");
        let (_, retry_after) = busy(claim.attempt(Wait::No).await);
        assert!(retry_after.unwrap() <= Duration::from_secs(60));
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        assert_eq!(store.admin.ask::<String>(&["GET", key]).await, "me");

        store.admin.ask::<()>(&["DEL", key]).await;
        granted(claim.attempt(Wait::No).await);
        assert!(foreign().await.is_none());
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        assert!(foreign().await.is_some());
    }
}

#[tokio::test]
async fn c14_a_foreign_lock_is_shown_and_never_freed() {
    let store = Store::start_with(&[], "?keys=raw").await;
    // The foreign lock even looks like one of ours.
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token;
    given_up(claim.release()).await;
    let looks = "0123456789abcdef0123456789abcdef";
    store.admin.ask::<()>(&["SET", "a", looks]).await;
    let seen = store.redis.inspect(&mutex("a")).await.unwrap();
    let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
    assert_eq!(
        (holder.owner, holder.token, holder.remaining, holder.age),
        (None, None, None, None)
    );
    assert_eq!(holder.label.as_deref(), Some(looks));
    for token in [token, FencingToken::new(0)] {
        assert_eq!(store.redis.force_release(&mutex("a"), token).await.unwrap(), Released::NotHeld);
    }
    // For a lock without a time to live, there is no good time to ask again.
    assert_eq!(busy(store.claim("a").attempt(Wait::No).await), (false, None));
    assert_eq!(store.admin.ask::<String>(&["GET", "a"]).await, looks);
}

#[tokio::test]
async fn c11_a_raw_name_can_not_be_a_helper_key() {
    let store = Store::start_with(&[], "?keys=raw").await;
    let error = store.redis.claim(spec("lockkit:raw:{a}:queue")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName);
    granted(store.claim("{a}").attempt(Wait::No).await);
    granted(store.claim("a").attempt(Wait::No).await);
}
