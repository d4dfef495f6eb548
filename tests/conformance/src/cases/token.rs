//! Tokens that can be raised, and leases of another length: a quorum and a manual renewal need
//! both.

use lockkit_core::{
    Clock, FencingToken, MIN_TTL, Tick,
    spi::{Attempt, Claim, Lease, Released, RenewalOutcome, Wait},
};

use crate::{
    case::{Ability, Needs, cases},
    env::{AMPLE, Env, give_back, long, take},
    wait::ROUNDING,
};

cases! {
    c4_a_raised_token_is_below_all_later_ones: Needs::MUTEX.ability(Ability::RaiseToken),
        "a token that is raised only for its holder, so the next token is smaller";
    c4_a_token_is_never_lowered: Needs::MUTEX.ability(Ability::RaiseToken),
        "a raise that lowers a larger token";
    c2_a_past_owner_raises_nothing: Needs::MUTEX.ability(Ability::RaiseToken),
        "a raise without a check of the owner";
    c3_an_extended_lease_is_that_long: Needs::MUTEX.ability(Ability::Extend),
        "an extension by the old ttl, or one that shortens the lease";
    c2_no_renewal_shortens_a_confirmed_lease: Needs::MUTEX.ability(Ability::Extend),
        "a renewal for a shorter time that shortens the holder's deadline";
    c2_a_past_owner_extends_nothing: Needs::MUTEX.ability(Ability::Extend),
        "an extension that creates a deleted lock again, or takes the lock of the next owner";
}

async fn granted(claim: &mut dyn Claim) -> FencingToken {
    match claim.attempt(Wait::No).await.unwrap() {
        Attempt::Granted(grant) => grant.token,
        busy => panic!("the lock is taken: {busy:?}"),
    }
}

const fn above(token: FencingToken, by: u64) -> FencingToken {
    FencingToken::new(token.get() + by)
}

async fn c4_a_raised_token_is_below_all_later_ones(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let mut first = env.claim(&*a, "x", &long());
    let mut next = env.claim(&*b, "x", &long());
    let token = granted(&mut *first).await;
    // An hour in microseconds: a server's clock does not pass that much during the case.
    let floor = above(token, 3_600_000_000);
    assert_eq!(first.raise_token(floor).await.unwrap(), Some(floor));
    assert_eq!(first.raise_token(floor).await.unwrap(), Some(floor), "raised once more");
    let seen = b.inspect(&env.name("x")).await.unwrap();
    assert_eq!(seen.holders[0].token, Some(floor), "C14: inspection shows the old token");
    match first.attempt(Wait::No).await.unwrap() {
        Attempt::Granted(grant) => {
            assert_eq!(grant.token, floor, "C5: asked again, it has another token")
        }
        busy => panic!("C5: {busy:?}"),
    }
    assert!(
        matches!(first.renew(None).await.unwrap(), RenewalOutcome::Alive(_)),
        "C10: not renewed after it was raised"
    );
    assert_eq!(b.force_release(&env.name("x"), token).await.unwrap(), Released::NotHeld);
    assert_eq!(first.release().await.unwrap(), Released::Freed);
    let later = granted(&mut *next).await;
    assert!(later > floor, "C4: {later} after {floor}");
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

async fn c4_a_token_is_never_lowered(env: Env) {
    let backend = env.backend().await;
    let mut claim = env.claim(&*backend, "x", &long());
    let token = granted(&mut *claim).await;
    for floor in [FencingToken::new(0), FencingToken::new(token.get() - 1), token] {
        assert_eq!(claim.raise_token(floor).await.unwrap(), Some(token));
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    let mut next = env.claim(&*backend, "x", &long());
    assert!(granted(&mut *next).await > token);
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

async fn c2_a_past_owner_raises_nothing(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let mut past = env.claim(&*a, "x", &long());
    let mut present = env.claim(&*b, "x", &long());
    let old = granted(&mut *past).await;
    env.harness().expire_now(&env.name("x")).await.unwrap();
    assert_eq!(
        past.raise_token(above(old, 1_000)).await.unwrap(),
        None,
        "C2: raised what nobody holds"
    );
    let token = granted(&mut *present).await;
    assert_eq!(
        past.raise_token(above(token, 1_000)).await.unwrap(),
        None,
        "C2: raised another owner's token"
    );
    let seen = b.inspect(&env.name("x")).await.unwrap();
    assert_eq!(seen.holders[0].token, Some(token));
    assert_eq!(past.release().await.unwrap(), Released::NotHeld);
    assert_eq!(present.release().await.unwrap(), Released::Freed);
}

async fn c3_an_extended_lease_is_that_long(env: Env) {
    let backend = env.backend().await;
    let options = env.fleeting(AMPLE);
    let mut claim = env.claim(&*backend, "x", &options);
    granted(&mut *claim).await;
    let lasts = |outcome| match outcome {
        RenewalOutcome::Alive(Lease::For(lasts) | Lease::Proven { lasts, .. }) => lasts,
        other => panic!("not extended: {other:?}"),
    };
    let long = options.ttl() * 5;
    assert!(lasts(claim.renew(Some(long)).await.unwrap()) >= long);
    let shown = backend.inspect(&env.name("x")).await.unwrap().holders[0].remaining;
    if let Some(remaining) = shown {
        assert!(remaining > options.ttl() * 3, "C3: the store keeps it for {remaining:?} only");
    }
    for shorter in [MIN_TTL, options.ttl()] {
        let left = lasts(claim.renew(Some(shorter)).await.unwrap());
        assert!(left >= shorter, "C2: {left:?} is left");
    }
    let remaining = backend.inspect(&env.name("x")).await.unwrap().holders[0].remaining;
    if let Some(remaining) = remaining {
        assert!(remaining > options.ttl() * 3, "C2: it was shortened to {remaining:?}");
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

async fn c2_no_renewal_shortens_a_confirmed_lease(env: Env) {
    let locker = env.locker().await;
    let options = env.fleeting(long().ttl());
    let ttl = options.ttl();
    let guard = take(&env.lock(&locker, "x", options.with_op_timeout(ttl / 2))).await;
    // The remaining lease must never shrink below what was confirmed, whatever is asked for
    // meanwhile.
    let clock = Clock::Boot;
    let now = clock.now();
    let mut confirmed = now.after(guard.remaining());
    let mut check = |what: &str, asked: Tick| {
        // The clock is read before and after the check, so that a busy machine does not shorten the
        // lease.
        let before = clock.now();
        let left = guard.remaining();
        let end = clock.now().after(left);
        // The answer may have aged on its way.
        let tolerance = ROUNDING + asked.until(before);
        assert!(end.after(tolerance) >= confirmed, "C2: {what} took {:?}", end.until(confirmed));
        confirmed = before.after(left);
    };
    let asked = clock.now();
    guard.extend(ttl / 4).await.unwrap();
    check("a shorter extension", asked);
    let asked = clock.now();
    guard.extend(ttl * 4).await.unwrap();
    check("an extension", asked);
    let asked = clock.now();
    guard.renew().await.unwrap();
    check("a renewal", asked);
    let asked = clock.now();
    guard.extend(ttl).await.unwrap();
    check("an extension by the ttl", asked);
    give_back(guard).await;
    locker.shutdown().await.unwrap();
}

async fn c2_a_past_owner_extends_nothing(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let mut past = env.claim(&*a, "x", &long());
    let mut present = env.claim(&*b, "x", &long());
    granted(&mut *past).await;
    env.harness().expire_now(&env.name("x")).await.unwrap();
    assert!(matches!(past.renew(Some(long().ttl())).await.unwrap(), RenewalOutcome::Lost(_)));
    assert!(b.inspect(&env.name("x")).await.unwrap().holders.is_empty(), "C2: re-created");
    granted(&mut *present).await;
    assert!(matches!(past.renew(Some(long().ttl())).await.unwrap(), RenewalOutcome::Lost(_)));
    assert_eq!(past.release().await.unwrap(), Released::NotHeld);
    assert_eq!(present.release().await.unwrap(), Released::Freed);
}
