//! Tests raised tokens, and leases of another length.

use std::num::NonZeroU32;

use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, OwnerId,
    spi::{Backend as _, Claim, ClaimSpec, LossReason, Mode, Released, RenewalOutcome, Wait},
};
use tokio::time::timeout;

use crate::support::*;

const DAY: u64 = 86_400_000;

fn above(token: FencingToken, ms: u64) -> FencingToken {
    FencingToken::new(token.get() + ms * 1000)
}

/// A mutex, an election, both sides of a read/write lock, and a semaphore of two permits.
fn specs() -> Vec<ClaimSpec> {
    let two = Mode::Permits { count: NonZeroU32::MIN, limit: NonZeroU32::new(2).unwrap() };
    [
        (Kind::Mutex, Mode::Exclusive),
        (Kind::Election, Mode::Exclusive),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
        (Kind::Semaphore, two),
    ]
    .map(|(kind, mode)| {
        ClaimSpec::new(LockName::new(kind, "a").unwrap(), OwnerId::random(), mode, TTL, OP_TIMEOUT)
    })
    .into()
}

/// The same claim, of another owner.
fn another(spec: &ClaimSpec) -> ClaimSpec {
    let mut spec = spec.clone();
    spec.owner = OwnerId::random();
    spec
}

/// The last token of the server, which must be kept for ever.
async fn counter(store: &Store) -> FencingToken {
    assert_eq!(store.admin.ask::<i64>(&["PTTL", &counter_key()]).await, -1);
    FencingToken::new(store.admin.ask(&["GET", &counter_key()]).await)
}

#[tokio::test]
async fn c4_a_token_is_raised_in_every_mode_and_kept() {
    for spec in specs() {
        let store = Store::start().await;
        let mut claim = store.redis.claim(spec.clone()).unwrap();
        let token = granted(claim.attempt(Wait::No).await).token;
        let floor = above(token, 10 * DAY);
        store.admin.reset_calls().await;
        for asked in [floor, token, floor, FencingToken::new(0)] {
            assert_eq!(claim.raise_token(asked).await.unwrap(), Some(floor), "{:?}", spec.mode);
        }
        assert_eq!(store.admin.requests().await, 4);
        assert_eq!(counter(&store).await, floor);
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(granted(claim.attempt(Wait::No).await).token, floor);
        let seen = store.redis.inspect(&spec.name).await.unwrap();
        assert_eq!(seen.holders[0].token, Some(floor));
        assert_eq!(store.redis.force_release(&spec.name, token).await.unwrap(), Released::NotHeld);
        assert_eq!(store.redis.force_release(&spec.name, floor).await.unwrap(), Released::Freed);
        assert_eq!(claim.raise_token(above(floor, 1)).await.unwrap(), None);
        let mut next = store.redis.claim(another(&spec)).unwrap();
        assert!(granted(next.attempt(Wait::No).await).token > floor);
        assert_eq!(claim.raise_token(above(floor, 1)).await.unwrap(), None);
        assert_eq!(next.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c4_no_two_permits_share_a_raised_token() {
    let store = Store::start().await;
    let spec = specs().pop().unwrap();
    let claim = || store.redis.claim(another(&spec)).unwrap();
    let mut first = claim();
    let mut second = claim();
    let low = granted(first.attempt(Wait::No).await).token;
    let high = granted(second.attempt(Wait::No).await).token;
    assert!(low < high);
    let raised = first.raise_token(high).await.unwrap().unwrap();
    assert!(raised > high, "{raised} and {high}");
    assert_eq!(first.raise_token(high).await.unwrap(), Some(raised));
    assert_eq!(second.raise_token(low).await.unwrap(), Some(high));
    store.admin.ask::<()>(&["DEL", &counter_key()]).await;
    let above = second.raise_token(raised).await.unwrap().unwrap();
    assert!(above > raised, "{above} and {raised}, although the counter was lost");
    for claim in [&mut first, &mut second] {
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c4_a_raise_whose_reply_is_lost_is_found_again_and_not_forgotten_by_renewals() {
    for spec in specs() {
        let store = Store::start().await;
        let mut claim: Box<dyn Claim> = store.redis.claim(spec.clone()).unwrap();
        let token = granted(claim.attempt(Wait::No).await).token;
        let floor = above(token, 10 * DAY);
        store.server.pause().unwrap();
        assert!(timeout(MOMENT, claim.raise_token(floor)).await.is_err());
        store.server.resume().unwrap();
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(counter(&store).await, floor);
        assert_eq!(granted(claim.attempt(Wait::No).await).token, floor);
        assert_eq!(claim.raise_token(token).await.unwrap(), Some(floor));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c4_a_token_that_the_store_has_lost_is_written_anew() {
    let store = Store::start().await;
    let lost = [None, Some("1700000000000000"), Some("8000000000000000")];
    for (spec, lost) in specs().into_iter().flat_map(|spec| lost.map(|lost| (spec.clone(), lost))) {
        let mut claim = store.redis.claim(another(&spec)).unwrap();
        let token = granted(claim.attempt(Wait::No).await).token;
        store.admin.ask::<()>(&["DEL", &counter_key()]).await;
        if let Some(text) = lost {
            store.admin.ask::<()>(&["SET", &counter_key(), text]).await;
        }
        let raised = claim.raise_token(FencingToken::new(1)).await.unwrap().unwrap();
        assert_eq!(raised, token);
        assert!(counter(&store).await >= token);
        assert_eq!(granted(claim.attempt(Wait::No).await).token, raised);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c4_tokens_are_raised_below_2_to_the_53_and_no_further() {
    const END: u64 = 1 << 53;
    for spec in specs() {
        let store = Store::start().await;
        let mut claim = store.redis.claim(spec.clone()).unwrap();
        let token = granted(claim.attempt(Wait::No).await).token;
        for floor in [END, END + 1, u64::MAX] {
            let error = claim.raise_token(FencingToken::new(floor)).await.unwrap_err();
            assert_eq!(
                (error.kind(), error.is_outcome_unknown()),
                (ErrorKind::InvalidOption, false)
            );
            assert!(error.to_string().contains("2^53"), "{error}");
        }
        assert_eq!(claim.raise_token(token).await.unwrap(), Some(token));
        let last = FencingToken::new(END - 1);
        assert_eq!(claim.raise_token(last).await.unwrap(), Some(last));
        assert_eq!(granted(claim.attempt(Wait::No).await).token, last);
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert!(error.to_string().contains("2^53"), "{error}");
    }
}

#[tokio::test]
async fn c3_a_lease_is_extended_in_every_mode_and_renewed_without_being_shortened() {
    for spec in specs() {
        let store = Store::start().await;
        let mut claim = store.redis.claim(spec).unwrap();
        granted(claim.attempt(Wait::No).await);
        let long = TTL * 10;
        let left = |outcome: RenewalOutcome| match outcome {
            RenewalOutcome::Alive(lease) => lasts(lease),
            lost => panic!("{lost:?}"),
        };
        assert_eq!(left(claim.renew(Some(long)).await.unwrap()), long);
        // The lease that was confirmed still counts after a renewal.
        for left in
            [left(claim.renew(None).await.unwrap()), left(claim.renew(Some(TTL)).await.unwrap())]
        {
            assert!(left > TTL * 9 && left <= long, "{left:?}");
        }
        store.admin.ask::<()>(&["FLUSHALL"]).await;
        assert_eq!(
            claim.renew(Some(long)).await.unwrap(),
            RenewalOutcome::Lost(LossReason::Evicted)
        );
        assert!(store.admin.keys().await.is_empty());
    }
}
