//! C3: a holder that asks sees the loss before the store can grant the lock to another owner.

use std::time::{Duration, Instant};

use lockkit_core::{
    ErrorKind, LockGuard, LockOptions, Renewal,
    spi::{Attempt, LeaseScope, LossReason, Released, RenewalOutcome, Wait},
};
use tokio::time::sleep;

use crate::{
    case::{Needs, cases},
    env::{AMPLE, Env, SHORT, becomes_free, give_back, lock_briefly, long, take},
    faulty::Op,
    harness::{Faults, Hook, Link as _},
    judge::{judged, loss_of},
    wait::{Asked, ROUNDING, STEP, at_once, eventually, soon, step, within},
    witness::{Stay, Witness},
};

cases! {
    c3_the_deadline_counts_from_before_the_request: Needs::EXCLUSIVE.lease(),
        "a deadline that counts from the reply, so a slow reply makes it later than the store's \
         lease";
    c3_a_renewals_deadline_counts_from_before_the_request: Needs::EXCLUSIVE.lease(),
        "a renewed deadline that counts from the reply";
    c3_a_lease_that_ended_is_never_held_again: Needs::EXCLUSIVE.lease(),
        "a late renewal that revives a lock after its holder saw the loss";
    c3_a_silent_store_loses_the_lock_before_it_can_regrant: Needs::EXCLUSIVE.lease(),
        "a driver that only logs failed renewals; a loss signal that waits for a request in flight";
    c3_the_store_keeps_what_it_confirmed: Needs::EXCLUSIVE.lease(),
        "a backend that reports a lease without proof, so the store frees the lock before its \
         holder's deadline";
    c3_a_paused_store_loses_the_lock_in_time: Needs::EXCLUSIVE.lease().hook(Hook::Pause),
        "a loss signal that waits for an answer of the store";
    c3_a_clock_that_goes_back_promises_no_more_than_was_asked:
        Needs::MUTEX.claim_lease().hook(Hook::ClockBack),
        "an answer with what is left by the store's clock: it may be set right again, and the lease ends with that";
    c3_remaining_never_exceeds_the_lease: Needs::EXCLUSIVE.lease(),
        "renewals that add a lease to the remaining one";
}

/// When the guard will see its lease as over, rounded down.
fn deadline(guard: &LockGuard) -> Instant {
    let now = Instant::now();
    now + guard.remaining()
}

/// A lease without renewals, and the delay of the replies, which is much larger than the margin for
/// drift.
fn slowly_answered(env: &Env) -> (LockOptions, Duration) {
    let options = env.fleeting(long().ttl());
    let op_timeout = options.ttl() / 2;
    let delay = options.ttl() / 20;
    (options.with_op_timeout(op_timeout), delay)
}

async fn c3_the_deadline_counts_from_before_the_request(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let (options, delay) = slowly_answered(&env);
    line.set(Faults { reply_delay: delay, ..Faults::NONE });
    let guard = take(&env.lock(&locker, "x", options.clone())).await;
    let deadline = deadline(&guard);
    let answered = Instant::now() - delay;
    let call = line.take_calls().into_iter().rfind(|call| call.op == Op::Attempt).unwrap();
    // Where each lock has a connection, several requests make up an attempt, and a later request
    // proves the lease.
    let is_of_connection = env.descriptor().lease_scope == LeaseScope::Connection;
    let latest = if is_of_connection { answered } else { call.at } + options.ttl();
    assert!(deadline <= latest, "C3: the deadline is {:?} late", deadline - latest);
    line.heal();
    give_back(guard).await;
}

async fn c3_a_renewals_deadline_counts_from_before_the_request(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let (options, delay) = slowly_answered(&env);
    let guard = take(&env.lock(&locker, "x", options.clone())).await;
    let first = deadline(&guard);
    line.set(Faults { reply_delay: delay, ..Faults::NONE });
    // A session's deadline moves only when the session's own proofs arrive.
    let least = if env.has_session_leases() { STEP } else { Duration::ZERO };
    let mut renewed = first;
    eventually(options.ttl(), async || {
        guard.renew().await.unwrap();
        renewed = deadline(&guard);
        match renewed > first + least {
            true => Ok(()),
            false => Err("the renewal was confirmed and moved nothing".to_owned()),
        }
    })
    .await;
    let call = line.take_calls().into_iter().rfind(|call| call.op == Op::KeepAlive).unwrap();
    assert!(
        renewed <= call.at + options.ttl(),
        "C3: the deadline is {:?} late",
        renewed - (call.at + options.ttl())
    );
    line.heal();
    give_back(guard).await;
}

async fn c3_a_lease_that_ended_is_never_held_again(env: Env) {
    let locker = env.locker().await;
    let guard = lock_briefly(&env, &locker, "x", Renewal::Manual).await;
    let reason = within(guard.remaining(), "the loss", guard.lost().wait()).await;
    assert_eq!(reason, LossReason::Expired);
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!guard.is_held(), "C3: a lost lock came back");
    at_once("a loss that is past", guard.lost().wait()).await;
    let ran = guard.run(std::future::pending::<()>()).await;
    assert_eq!(ran.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
}

async fn c3_a_silent_store_loses_the_lock_before_it_can_regrant(env: Env) {
    let (cut_off, link) = env.faulty_locker().await;
    let healthy = env.locker().await;
    let options = LockOptions::new().with_ttl(env.ttl(SHORT));
    let witness = Witness::default();
    let guard = take(&env.lock(&cut_off, "x", options.clone())).await;
    link.set(Faults::SILENCE);
    let mut stay = Stay::begin(&guard);
    let promised = deadline(&guard);
    let next = env.lock(&healthy, "x", long());
    let (next, early) = tokio::join!(
        async {
            let next = next.lock().await.unwrap();
            (Stay::begin(&next), next)
        },
        async {
            let watch = async {
                while stay.look(&guard) {
                    step().await;
                }
            };
            let lost = guard.lost();
            let (reason, ()) = tokio::join!(within(options.ttl(), "the loss", lost.wait()), watch);
            assert_eq!(reason, LossReason::Expired);
            promised.saturating_duration_since(Instant::now())
        }
    );
    assert!(
        early <= ROUNDING,
        "C3: given up {early:?} before the end of a lease that was confirmed"
    );
    let (mut later, next) = next;
    later.look(&next);
    witness.record(stay);
    witness.record(later);
    witness.verify();
    link.heal();
    assert!(!guard.is_held());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    give_back(next).await;
}

async fn c3_the_store_keeps_what_it_confirmed(env: Env) {
    judged(&env, SHORT, async |turn| {
        let (cut_off, link) = env.harness().connect_through_faults().await.unwrap();
        let healthy = env.backend().await;
        let options = turn.fleeting();
        let mut mine = env.claim(&*cut_off, &turn.name, &options);
        let answer = turn.answer(mine.attempt(Wait::No)).await?;
        assert!(matches!(answer, Attempt::Granted(_)), "{answer:?} of a free lock");
        // After this pause, the grant can't prove what the renewal confirms.
        sleep(options.ttl() / 4).await;
        let asked = Asked::now();
        let RenewalOutcome::Alive(lease) = mine.renew(None).await.map_err(loss_of)? else {
            return Err("C10: lost in a quarter of its lease".to_owned());
        };
        link.set(Faults::SILENCE);
        let promised = asked.deadline(lease).expect("a lease that ends");
        let mut other = env.claim(&*healthy, &turn.name, &long());
        eventually(options.ttl() + env.descriptor().takeover_delay + soon(), async || match other
            .attempt(Wait::No)
            .await
            .unwrap()
        {
            Attempt::Granted(_) => Ok(()),
            busy => Err(format!("C9: {busy:?} of what nobody renews")),
        })
        .await;
        let early = promised.saturating_duration_since(Instant::now());
        assert!(
            early.is_zero(),
            "C3: granted to another one {early:?} before the holder's deadline"
        );
        link.cut();
        link.heal();
        assert_eq!(other.release().await.unwrap(), Released::Freed);
        Ok(())
    })
    .await;
}

async fn c3_a_paused_store_loses_the_lock_in_time(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let options = LockOptions::new().with_ttl(env.ttl(SHORT));
    let guard = take(&env.lock(&locker, "x", options.clone())).await;
    env.harness().pause().await.unwrap();
    // The confirmed request was sent before this instant. A session sends requests on its own, and
    // where each lock has a connection, an attempt may be more than one request.
    let calls = line.take_calls();
    let asked = calls.iter().map(|call| call.at).max().unwrap();
    // Later requests may have got no answer: the server may have been silent before the pause.
    let granted = calls.iter().map(|call| call.at).min().unwrap();
    let by_one_request = env.descriptor().lease_scope == LeaseScope::Claim;
    let confirmed = if by_one_request { asked } else { Instant::now() };
    let mut stay = Stay::begin(&guard);
    let watch = async {
        while stay.look(&guard) {
            step().await;
        }
        Instant::now()
    };
    let lost = guard.lost();
    let signal = async {
        let reason = within(options.ttl(), "the loss", lost.wait()).await;
        (reason, guard.is_held())
    };
    let ((reason, held), ended) = tokio::join!(signal, watch);
    env.harness().resume().await.unwrap();
    assert_eq!(reason, LossReason::Expired);
    assert!(!held, "C3: lost() fired and is_held() still said true");
    // If it was lost before the first look, the stay proves nothing.
    let in_time = stay.until <= confirmed + options.ttl();
    assert!(in_time || stay.until == stay.from, "C3: held for longer than the lease");
    assert!(ended >= granted + options.ttl() / 2, "C3: given up long before the end of the lease");
    drop(guard);
    becomes_free(&env.lock(&locker, "x", long())).await;
}

async fn c3_a_clock_that_goes_back_promises_no_more_than_was_asked(env: Env) {
    const BACK: Duration = Duration::from_secs(20 * 24 * 3_600);
    let backend = env.backend().await;
    let options = env.fleeting(AMPLE);
    let mut claim = env.claim(&*backend, "x", &options);
    let granted = claim.attempt(Wait::No).await.unwrap();
    assert!(matches!(granted, Attempt::Granted(_)), "{granted:?} of a free lock");
    env.harness().set_clock_back(&env.name("x"), BACK).await.unwrap();
    for _ in 0..3 {
        let asked = Asked::now();
        let outcome = claim.renew(None).await.unwrap();
        let RenewalOutcome::Alive(lease) = outcome else {
            panic!("C10: lost by a clock that went back: {outcome:?}")
        };
        let ends = asked.deadline(lease).expect("a lease that ends");
        let most = asked.at + options.ttl();
        assert!(ends <= most, "C3: {lease:?} was confirmed, and {:?} asked for", options.ttl());
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

async fn c3_remaining_never_exceeds_the_lease(env: Env) {
    let locker = env.locker().await;
    let options = env.fleeting(long().ttl());
    let options = options.clone().with_op_timeout(options.ttl() / 2);
    let guard = take(&env.lock(&locker, "x", options.clone())).await;
    for _ in 0..5 {
        let left = guard.remaining();
        let ttl = options.ttl();
        assert!(left <= ttl, "C3: {left:?} are left of {ttl:?}");
        guard.renew().await.unwrap();
    }
    give_back(guard).await;
}
