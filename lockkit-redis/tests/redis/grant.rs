//! Tests each answer of each script to acquire, renew and release.

use std::time::Duration;

use lockkit_core::{
    FencingToken,
    spi::{Backend as _, LossReason, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;

use crate::support::*;

/// In ms, a lease that is cut and soon renewed.
const SHORT: &str = "30000";

/// The remaining lease of "a" in the store.
async fn left(store: &Store) -> Duration {
    Duration::from_millis(store.admin.ask(&["PTTL", &lock_key("a")]).await)
}

#[tokio::test]
async fn c1_one_owner_at_a_time_and_the_next_has_a_larger_token() {
    let store = Store::start().await;
    let (mut a, mut b) = (store.claim("a"), store.claim("a"));
    let first = granted(a.attempt(Wait::No).await);
    assert_eq!(lasts(first.lease), TTL);
    let (queued, retry_after) = busy(b.attempt(Wait::No).await);
    assert!(!queued);
    assert!(retry_after.unwrap() <= TTL && retry_after.unwrap() > TTL / 2);
    assert_eq!(a.release().await.unwrap(), Released::Freed);
    let second = granted(b.attempt(Wait::No).await);
    assert!(second.token > first.token);
    assert_eq!(b.release().await.unwrap(), Released::Freed);
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

#[tokio::test]
async fn c5_a_second_attempt_of_the_same_claim_gets_its_own_token_and_a_full_lease() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    let first = granted(claim.attempt(Wait::No).await);
    store.admin.ask::<()>(&["PEXPIRE", &lock_key("a"), SHORT]).await;
    let again = granted(claim.attempt(Wait::No).await);
    assert_eq!((again.token, lasts(again.lease)), (first.token, TTL));
    assert!(left(&store).await > TTL * 2 / 3);
}

#[tokio::test]
async fn c2_no_lease_is_ever_shortened_and_none_believed_for_longer_than_its_ttl() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    // It looks like a step back of the server's clock, which may be corrected.
    store.admin.ask::<()>(&["EXPIRE", &lock_key("a"), "600"]).await;
    assert_eq!(lasts(granted(claim.attempt(Wait::No).await).lease), TTL);
    assert!(
        matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(lease) if lasts(lease) == TTL)
    );
    assert!(left(&store).await > TTL * 2);
}

#[tokio::test]
async fn c2_a_renewal_extends_and_never_re_creates() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    for cut in [["PEXPIRE", SHORT], ["PERSIST", ""]] {
        let words: Vec<_> = [cut[0], &lock_key("a"), cut[1]]
            .into_iter()
            .filter(|w| !w.is_empty())
            .map(str::to_owned)
            .collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        store.admin.ask::<()>(&words).await;
        assert!(
            matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(lease) if lasts(lease) == TTL)
        );
        assert!(left(&store).await > TTL * 2 / 3);
    }
    store.admin.ask::<()>(&["DEL", &lock_key("a")]).await;
    assert_eq!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

#[tokio::test]
async fn c2_a_past_owner_changes_nothing() {
    let store = Store::start().await;
    let mut first = holder(&store, "a").await;
    let (mut second, signal) = store.waiter("a");
    busy(second.attempt(Wait::Queue).await);
    // The lease is a fact of the store: once it has lapsed, the next claim that asks gets the lock.
    store.end_leases(&mutex("a")).await;
    wait_for(&mut second, &signal).await;
    let value: String = store.admin.ask(&["GET", &lock_key("a")]).await;
    let mut third = queue(&store, "a", 1).await;
    let woken = signal.wakes();
    assert_eq!(first.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert_eq!(store.admin.ask::<String>(&["GET", &lock_key("a")]).await, value);
    store.settle().await;
    assert_eq!((signal.wakes(), wakes(&third)), (woken, vec![0]));
    assert_eq!(third.remove(0).0.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn an_uncontended_pair_costs_two_requests_and_a_refused_one_costs_one() {
    let store = Store::start().await;
    let (mut a, mut b) = (store.claim("a"), store.claim("a"));
    granted(a.attempt(Wait::Queue).await);
    given_up(a.release()).await;
    store.admin.reset_calls().await;
    granted(a.attempt(Wait::Queue).await);
    assert_eq!(store.admin.requests().await, 1);
    busy(b.attempt(Wait::No).await);
    assert_eq!(store.admin.requests().await, 2);
    // The claim has nothing to undo.
    given_up(b.release()).await;
    assert_eq!(store.admin.requests().await, 2);
    given_up(a.release()).await;
    assert_eq!(store.admin.requests().await, 3);
    assert_eq!(store.admin.keys().await, [counter_key()]);
    assert!(store.admin.channels().await.is_empty());
}

#[tokio::test]
async fn c14_inspect_shows_owner_label_token_age_and_remaining_lease() {
    let store = Store::start().await;
    assert!(store.redis.inspect(&mutex("a")).await.unwrap().holders.is_empty());
    for label in [None, Some("host 7: worker:3")] {
        let mut spec = spec("a");
        spec.label = label.map(Into::into);
        let owner = spec.owner;
        let mut claim = store.redis.claim(spec).unwrap();
        let grant = granted(claim.attempt(Wait::No).await);
        let seen = store.redis.inspect(&mutex("a")).await.unwrap();
        let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
        assert_eq!(
            (holder.owner, holder.token, holder.label.as_deref()),
            (Some(owner), Some(grant.token), label)
        );
        assert!(holder.age.unwrap() < SOON);
        assert!(holder.remaining.unwrap() <= TTL && holder.remaining.unwrap() > TTL / 2);
        given_up(claim.release()).await;
    }
}

#[tokio::test]
async fn c14_force_release_frees_only_the_grant_with_that_token() {
    let store = Store::start().await;
    let force = async |token: u64| {
        store.redis.force_release(&mutex("a"), FencingToken::new(token)).await.unwrap()
    };
    assert_eq!(force(1).await, Released::NotHeld);
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token.get();
    for other in [0, token - 1, token + 1] {
        assert_eq!(force(other).await, Released::NotHeld);
    }
    let (mut waiter, signal) = store.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);
    assert_eq!(force(token).await, Released::Freed);
    signal.heard().await;
    assert!(granted(waiter.attempt(Wait::Queue).await).token.get() > token);
    assert_eq!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(force(token).await, Released::NotHeld);
}

#[tokio::test]
async fn c11_names_that_look_alike_never_meet() {
    let store = Store::start().await;
    let long = "x".repeat(255);
    let emoji = "🔒".repeat(63);
    let names = [
        "{", "}", "%", "%7B", "%7D", "%25", "{}", "{a}", "a", "a:queue", "}:queue", "*", "?", " a",
        "a ", "A", "🔒", &long, &emoji,
    ];
    let mut claims = Vec::new();
    for name in names {
        let mut claim = store.claim(name);
        granted(claim.attempt(Wait::No).await);
        claims.push(claim);
    }
    assert_eq!(store.admin.keys().await.len(), names.len() + 1, "and the counter");
    for (claim, name) in claims.iter_mut().zip(names) {
        busy(store.claim(name).attempt(Wait::No).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn unsupported_operations_of_redis_are_refused() {
    let store = Store::start().await;
    let mut spec = spec("a");
    let one = std::num::NonZeroU32::MIN;
    for mode in [
        lockkit_core::spi::Mode::Shared,
        lockkit_core::spi::Mode::Permits { count: one, limit: one },
    ] {
        spec.mode = mode;
        let error = store.redis.claim(spec.clone()).unwrap_err();
        assert_eq!(error.kind(), lockkit_core::ErrorKind::Unsupported);
    }
}
