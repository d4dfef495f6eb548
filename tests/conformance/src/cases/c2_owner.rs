//! C2: only the owner renews and releases.

use std::collections::BTreeSet;

use lockkit_core::{
    ErrorKind, OwnerId,
    spi::{Attempt, Released, RenewalOutcome, Wait},
};
use tokio::time::sleep;

use crate::{
    case::{Needs, cases},
    env::{BRIEF, Env, SHORT, becomes_free, give_back, long, take},
};

cases! {
    c2_a_past_owners_release_changes_nothing: Needs::EXCLUSIVE,
        "a release that deletes without comparing the owner";
    c2_a_past_owners_drop_changes_nothing: Needs::EXCLUSIVE,
        "a background release that deletes without comparing the owner";
    c2_a_past_owners_renewal_is_refused: Needs::EXCLUSIVE,
        "a renewal that checks that the lock is held, but not by which owner";
    c2_a_past_owners_renewal_changes_nothing: Needs::EXCLUSIVE.claim_lease(),
        "a renewal that extends the record of another owner";
    c2_a_renewal_never_recreates: Needs::EXCLUSIVE,
        "a renewal that creates a deleted record again";
    c2_a_renewal_never_shortens: Needs::EXCLUSIVE.claim_lease(),
        "a renewal or a retry that shortens the lease, because it sets the lease instead of \
         extending it";
    c2_each_claim_has_a_fresh_owner: Needs::EXCLUSIVE,
        "an owner id per process or per locker, so two tasks of one process free each other's locks";
}

async fn c2_a_past_owners_release_changes_nothing(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    // Bare claims: if the store reported the loss, a driver would release the claim before the next
    // owner comes.
    let mut past = env.claim(&*a, "x", &long());
    granted(past.attempt(Wait::No).await.unwrap());
    env.harness().expire_now(&env.name("x")).await.unwrap();
    let mut present = env.claim(&*b, "x", &long());
    granted(present.attempt(Wait::No).await.unwrap());
    assert_eq!(past.release().await.unwrap(), Released::NotHeld, "C7: it was not held any more");
    still_alone(&env, "x").await;
    assert_eq!(present.release().await.unwrap(), Released::Freed, "C2: the past owner freed it");
}

async fn c2_a_past_owners_drop_changes_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let past = take(&env.lock(&a, "x", env.unrenewed())).await;
    env.harness().expire_now(past.name()).await.unwrap();
    let present = take(&env.lock(&b, "x", long())).await;
    drop(past);
    a.shutdown().await.unwrap();
    still_alone(&env, "x").await;
    present.release().await.unwrap_or_else(|error| panic!("C2: the past owner freed it: {error}"));
}

async fn c2_a_past_owners_renewal_is_refused(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let mut past = env.claim(&*a, "x", &long());
    granted(past.attempt(Wait::No).await.unwrap());
    env.harness().expire_now(&env.name("x")).await.unwrap();
    is_lost(past.renew(None).await.unwrap());
    let mut present = env.claim(&*b, "x", &long());
    granted(present.attempt(Wait::No).await.unwrap());
    is_lost(past.renew(None).await.unwrap());
    let outcome = present.renew(None).await.unwrap();
    assert!(
        matches!(outcome, RenewalOutcome::Alive(_)),
        "C2: a past owner's renewal took it: {outcome:?}"
    );
    assert_eq!(past.release().await.unwrap(), Released::NotHeld);
    assert_eq!(present.release().await.unwrap(), Released::Freed, "C2: the past owner freed it");
}

async fn c2_a_past_owners_renewal_changes_nothing(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let c = env.locker().await;
    let mut past = env.claim(&*a, "x", &long());
    granted(past.attempt(Wait::No).await.unwrap());
    env.harness().expire_now(&env.name("x")).await.unwrap();
    let short = env.fleeting(SHORT);
    let mut present = env.claim(&*b, "x", &short);
    granted(present.attempt(Wait::No).await.unwrap());
    is_lost(past.renew(None).await.unwrap());
    // This is the short lease of the present owner, not the past owner's.
    sleep(short.ttl()).await;
    becomes_free(&env.lock(&c, "x", long())).await;
    assert_eq!(past.release().await.unwrap(), Released::NotHeld);
    assert_eq!(present.release().await.unwrap(), Released::NotHeld);
}

async fn c2_a_renewal_never_recreates(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let past = take(&env.lock(&a, "x", env.unrenewed())).await;
    env.harness().expire_now(past.name()).await.unwrap();
    let error = past.renew().await.expect_err("C2: renewed what is gone");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(!past.is_held(), "the store has said that it is gone");
    let next = take(&env.lock(&b, "x", long())).await;
    assert_eq!(past.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
}

async fn c2_a_renewal_never_shortens(env: Env) {
    let a = env.backend().await;
    let b = env.locker().await;
    let owner = OwnerId::random();
    let mode = env.flavor().mode();
    let short = env.fleeting(BRIEF);
    // This lease lasts much longer than the case, even where a slow store lengthens the short
    // lease.
    let lasting = long().with_ttl(long().ttl().max(short.ttl() * 20));
    let mut long_lease = env.claim_of(&*a, "x", &lasting, owner, mode);
    let mut short_lease = env.claim_of(&*a, "x", &short, owner, mode);
    granted(long_lease.attempt(Wait::No).await.unwrap());
    granted(short_lease.attempt(Wait::No).await.unwrap());
    assert!(matches!(short_lease.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    let other = env.lock(&b, "x", long());
    for _ in 0..5 {
        sleep(short.ttl() / 2).await;
        assert!(
            other.try_lock().await.unwrap().is_none(),
            "C2: a lease of {:?} ended soon after one of {:?}",
            lasting.ttl(),
            short.ttl()
        );
    }
    assert!(matches!(long_lease.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(long_lease.release().await.unwrap(), Released::Freed);
    assert_eq!(short_lease.release().await.unwrap(), Released::NotHeld);
}

async fn c2_each_claim_has_a_fresh_owner(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let guard = take(&lock).await;
        assert!(seen.insert(guard.owner()), "C2: an owner id came twice");
        give_back(guard).await;
    }
}

#[track_caller]
fn is_lost(outcome: RenewalOutcome) {
    assert!(matches!(outcome, RenewalOutcome::Lost(_)), "C2: a past owner was told {outcome:?}");
}

fn granted(attempt: Attempt) {
    assert!(matches!(attempt, Attempt::Granted(_)), "{attempt:?} of a free lock");
}

async fn still_alone(env: &Env, name: &str) {
    let locker = env.locker().await;
    let got = env.lock(&locker, name, long()).try_lock().await.unwrap();
    assert!(got.is_none(), "C2: a past owner freed the present owner's lock");
}
