//! The length of a hold: its end, the warning before it, leases of another length, and holds
//! without a guard.

use std::{
    slice,
    time::{Duration, Instant},
};

use lockkit_core::{ErrorKind, LockOptions, Locker, spi::LossReason, spi::Released};
use tokio::time::sleep;

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, SHORT, becomes_free, give_back, long, take},
    faulty::Op,
    judge::{judged, loss_of},
    wait::{ROUNDING, at_once, eventually, slack, soon, step, within},
    witness::{Stay, Witness},
};

cases! {
    c3_a_hold_ends_at_its_max_and_is_freed: Needs::EXCLUSIVE,
        "a renewal that extends a hold beyond max_hold; an ended hold that looks held, or blocks \
         the next holder";
    c10_a_hold_with_a_max_is_renewed_until_then: Needs::MUTEX.lease(),
        "a driver that does not renew a hold with a max_hold";
    c3_a_warning_comes_before_the_end: Needs::MUTEX,
        "a warning that comes only with the loss, at each renewal, or after a release";
    c3_an_extended_hold_lasts_that_long: Needs::MUTEX.ability(Ability::Extend),
        "an extension that the store does not know; a renewal that revokes an extension";
    c13_an_impossible_extension_is_an_error: Needs::MUTEX,
        "an extension that silently renews for the ttl";
    c10_a_leaked_lock_stays_without_its_locker: Needs::EXCLUSIVE,
        "a leaked lock that ends with the last locker, whose loss is not reported, or that stays \
         for ever";
    c7_a_shutdown_frees_leaked_locks: Needs::EXCLUSIVE,
        "a shutdown that waits for a leaked guard, or leaves its lock behind";
    c9_a_manual_lock_that_was_leaked_lapses: Needs::MUTEX.claim_lease(),
        "a leaked lock that is renewed against its options, or freed early";
}

/// The hold ends after the first lease would end.
fn ending(ttl: Duration) -> (LockOptions, Duration) {
    (LockOptions::new().with_ttl(ttl).with_max_hold(ttl * 2), ttl * 2)
}

async fn c3_a_hold_ends_at_its_max_and_is_freed(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let (options, max_hold) = ending(turn.ttl);
        let witness = Witness::default();
        let next = turn.lock(&b, long());
        let asked = Instant::now();
        let guard = turn.take(&turn.lock(&a, options)).await?;
        let mut stay = Stay::begin(&guard);
        let granted = Instant::now();
        let waiting = tokio::spawn(async move { next.lock().await.unwrap() });
        let lost = guard.lost();
        while stay.look(&guard) {
            let held = stay.until.saturating_duration_since(granted);
            assert!(held <= max_hold, "C3: it is held {held:?} after the grant");
            step().await;
        }
        let ended = asked.elapsed();
        let reason = at_once("the loss signal", lost.wait()).await;
        witness.record(stay);
        let next = within(env.poll() + slack(), "the next grant", waiting).await.unwrap();
        witness.record(Stay::begin(&next));
        assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(next.is_held());
        give_back(next).await;
        assert_eq!(witness.verify(), 2);
        if reason == LossReason::Expired {
            return Err(format!("C10: it ended with its lease, after {ended:?}"));
        }
        assert!(
            reason == LossReason::MaxHold && ended >= max_hold,
            "C10: {reason:?} after {ended:?}"
        );
        Ok(())
    })
    .await;
}

async fn c10_a_hold_with_a_max_is_renewed_until_then(env: Env) {
    judged(&env, SHORT, async |turn| {
        let (locker, line) = turn.spied_locker().await;
        let other = turn.lock(&env.locker().await, long());
        let (options, max_hold) = ending(turn.ttl);
        let guard = turn.take(&turn.lock(&locker, options)).await?;
        sleep(max_hold * 3 / 4).await;
        let held = guard.is_held();
        let granted = turn.is_granted_beside(slice::from_ref(&guard), other.try_lock()).await?;
        if granted || !held {
            return Err("C10: it was not renewed".to_owned());
        }
        let reason = within(max_hold / 4, "the end", guard.lost().wait()).await;
        let renewals = line.take_calls().iter().filter(|call| call.op == Op::KeepAlive).count();
        // Some stores renew every second, however long the lease is.
        let most = usize::try_from(max_hold.as_secs()).unwrap() * 2 + 40;
        assert!((1..=most).contains(&renewals), "C10: {renewals} renewals");
        drop(guard);
        becomes_free(&other).await;
        if reason == LossReason::Expired {
            return Err("C10: it ended with its lease, and not at its max".to_owned());
        }
        Ok(())
    })
    .await;
}

async fn c3_a_warning_comes_before_the_end(env: Env) {
    let locker = env.locker().await;
    let (options, max_hold) = ending(env.ttl(SHORT));
    let before = max_hold / 4;
    let guard = take(&env.lock(&locker, "x", options)).await;
    let warning = guard.expiring(before);
    let left = within(max_hold, "the warning", warning.clone().wait()).await;
    assert!(left <= before, "{left:?}");
    if !left.is_zero() {
        assert!(guard.is_held() || guard.lost().is_lost());
    }
    guard.lost().await;
    assert_eq!(warning.await, Duration::ZERO, "what is lost is told at once");
    drop(guard);
    let lock = env.lock(&locker, "x", long());
    let guard = within(env.poll() + soon(), "the next grant", lock.lock()).await.unwrap();
    let warning = guard.expiring(before);
    give_back(guard).await;
    let told = tokio::time::timeout(env.moment(), warning.wait()).await;
    assert!(told.is_err(), "a warning after the release: {told:?}");
}

async fn c3_an_extended_hold_lasts_that_long(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let ttl = turn.ttl;
        let other = turn.lock(&b, long());
        let guard = turn.take(&turn.lock(&a, turn.fleeting())).await?;
        let asked = Instant::now();
        let left = guard.extend(ttl * 4).await.map_err(loss_of)?;
        assert!(left <= ttl * 4, "{left:?} of {:?}", ttl * 4);
        if left <= ttl * 3 {
            return Err(format!("{left:?} are left of {:?}", ttl * 4));
        }
        let again = Instant::now();
        let shorter = guard.extend(ttl).await.map_err(loss_of)?;
        // The store measures what is left after the request was sent. The lease counts from before.
        let passed = asked.elapsed() + again.elapsed();
        assert!(shorter + passed >= left - ROUNDING, "C2: {shorter:?} after {left:?}");
        guard.renew().await.map_err(loss_of)?;
        sleep(ttl * 2).await;
        let held = guard.is_held();
        let granted = turn.is_granted_beside(slice::from_ref(&guard), other.try_lock()).await?;
        if granted || !held {
            return Err("C2: the renewal has shortened it".to_owned());
        }
        assert_eq!(within(ttl * 2, "the end", guard.lost().wait()).await, LossReason::Expired);
        assert!(asked.elapsed() > ttl * 3);
        becomes_free(&other).await;
        drop(guard);
        Ok(())
    })
    .await;
}

async fn c13_an_impossible_extension_is_an_error(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let guard = take(&env.lock(&locker, "x", long())).await;
    drop(line.take_calls());
    let bad = guard.extend(Duration::ZERO).await.unwrap_err();
    if env.descriptor().capabilities.extend {
        assert_eq!(bad.kind(), ErrorKind::InvalidOption);
    } else {
        assert_eq!(guard.extend(long().ttl()).await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(bad.kind(), ErrorKind::Unsupported);
    }
    let calls = line.take_calls();
    assert!(calls.is_empty(), "the store was asked: {calls:?}");
    give_back(guard).await;
}

async fn c10_a_leaked_lock_stays_without_its_locker(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let other = turn.lock(&b, long());
        let lock = turn.lock(&a, turn.renewed());
        let guard = turn.take(&lock).await?;
        let token = guard.fencing_token();
        let lost = guard.leak();
        drop((a, lock));
        sleep(turn.ttl * 2).await;
        if other.try_lock().await.unwrap().is_some() {
            assert!(lost.is_lost(), "C1: it was given up with the locker");
        }
        if lost.is_lost() || turn.answer(other.force_release(token)).await? == Released::NotHeld {
            return Err("C10: it was not renewed".to_owned());
        }
        within(turn.ttl, "the loss signal", lost.wait()).await;
        becomes_free(&other).await;
        Ok(())
    })
    .await;
}

async fn c7_a_shutdown_frees_leaked_locks(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let other = env.lock(&b, "x", long());
    let lost = take(&env.lock(&a, "x", long())).await.leak();
    let manual = take(&env.lock(&a, "y", env.unrenewed())).await.leak();
    within(soon(), "the shutdown", a.shutdown()).await.unwrap();
    for lost in [lost, manual] {
        assert_eq!(at_once("the loss signal", lost.wait()).await, LossReason::Closed);
    }
    becomes_free(&other).await;
    becomes_free(&env.lock(&b, "y", long())).await;
}

async fn c9_a_manual_lock_that_was_leaked_lapses(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let options = env.fleeting(SHORT);
    let other = env.lock(&b, "x", long());
    let ttl = options.ttl();
    let asked = Instant::now();
    let lost = leaked(&env, &a, options).await;
    // The lease may be shorter by the margin for drift, and on a busy machine the attempt may come
    // late.
    let early = other.try_lock().await.unwrap();
    assert!(early.is_none() || asked.elapsed() > ttl * 9 / 10, "C9: it was freed early");
    drop(early);
    assert_eq!(within(ttl, "the end", lost.wait()).await, LossReason::Expired);
    eventually(env.descriptor().takeover_delay + soon(), async || {
        match other.try_lock().await.unwrap() {
            Some(guard) => {
                give_back(guard).await;
                Ok(())
            }
            None => Err("C9: it stays taken".to_owned()),
        }
    })
    .await;
    assert!(asked.elapsed() > ttl * 9 / 10, "C9: it was freed after {:?}", asked.elapsed());
}

async fn leaked(env: &Env, locker: &Locker, options: LockOptions) -> lockkit_core::Lost {
    take(&env.lock(locker, "x", options)).await.leak()
}
