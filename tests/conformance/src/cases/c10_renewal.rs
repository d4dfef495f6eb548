//! C10: a live holder keeps its lock, and nothing is renewed after its release.

use std::{
    slice,
    time::{Duration, Instant},
};

use lockkit_core::{
    LockGuard, LockOptions, OwnerId, Renewal,
    spi::{Attempt, LeaseScope, LossReason, Mode, Note, Noted, Released, RenewalOutcome, Wait},
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, LONGEST_SHORT_LEASE, SHORT, give_back, lock_briefly, long, take},
    faulty::Op,
    harness::{Faults, Hook, Link as _},
    judge::{Loss, judged, loss_of},
    lock::Flavor,
    wait::{a_minute, at_once, eventually, soon, step, within},
};

cases! {
    c10_a_live_holder_keeps_it_for_many_leases: Needs::MUTEX.lease(),
        "a backend that renews never, too late, or only once";
    c10_a_short_outage_ends_nothing: Needs::MUTEX.lease(),
        "a driver that takes a renewal without an answer for a loss";
    c10_an_unknown_renewal_extends_nothing: Needs::EXCLUSIVE.lease(),
        "a driver that takes a renewal without an answer for a success";
    c10_a_lost_renewal_is_believed: Needs::EXCLUSIVE.lease(),
        "a driver that ignores the answer 'not yours' to a renewal, so the holder continues for \
         ever";
    c10_a_full_store_ends_no_hold: Needs::EXCLUSIVE.lease().hook(Hook::Fill),
        "a renewal that needs space in the store, so a full store refuses it";
    c10_nothing_is_renewed_after_its_release: Needs::EXCLUSIVE.lease(),
        "a driver that sends a release while a renewal is queued or in flight";
    c10_notes_back_to_back_do_not_starve_renewal: Needs::MUTEX.ability(Ability::Notes).lease(),
        "a note that counts as a renewal, or that delays renewals";
    c10_slow_round_trips_end_no_hold: Needs::MUTEX.lease(),
        "a driver that ignores late answers, so a slow store loses every lock";
}

async fn c10_a_live_holder_keeps_it_for_many_leases(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let guard = turn.take(&turn.lock(&a, turn.renewed())).await?;
        let other = turn.lock(&b, long());
        let start = Instant::now();
        while start.elapsed() < turn.ttl.mul_f64(2.5) {
            let granted = turn.is_granted_beside(slice::from_ref(&guard), other.try_lock()).await?;
            if granted || !guard.is_held() {
                return Err(format!("C10: lost after {:?}", start.elapsed()));
            }
            sleep(turn.ttl / 20).await;
        }
        is_given_back(guard).await
    })
    .await;
}

async fn c10_notes_back_to_back_do_not_starve_renewal(env: Env) {
    judged(&env, SHORT, async |turn| {
        let (locker, line) = turn.spied_locker().await;
        let guard = turn.take(&turn.lock(&locker, turn.renewed())).await?;
        // With this delay a note is nearly always in progress, also in memory.
        line.set(Faults { request_delay: turn.ttl / 50, ..Faults::NONE });
        let start = Instant::now();
        let mut note = Note::default();
        while start.elapsed() < turn.ttl.mul_f64(2.5) {
            note = note.next("busy");
            let noted = turn.answer(guard.write_note(&note)).await?;
            assert_eq!(noted, Noted::Written);
            if !guard.is_held() {
                return Err(format!("C10: lost after {:?}", start.elapsed()));
            }
        }
        line.heal();
        is_given_back(guard).await
    })
    .await;
}

async fn c10_slow_round_trips_end_no_hold(env: Env) {
    judged(&env, SHORT, async |turn| {
        let (locker, link) = env.faulty_locker().await;
        let guard = turn.take(&turn.lock(&locker, turn.renewed())).await?;
        turn.delay_answers(&*link, turn.ttl / 10);
        let start = Instant::now();
        // A lease that no late answer renews ends within one ttl.
        while start.elapsed() < turn.ttl.mul_f64(1.5) {
            if !guard.is_held() {
                return Err(format!("C10: lost after {:?}", start.elapsed()));
            }
            sleep(turn.ttl / 20).await;
        }
        link.heal();
        is_given_back(guard).await
    })
    .await;
}

async fn c10_a_short_outage_ends_nothing(env: Env) {
    judged(&env, SHORT * 2, async |turn| {
        // This locker's calls are slow because of the outage, so they must not excuse a loss.
        let (locker, line) = env.spied_locker().await;
        let ttl = turn.ttl;
        let guard = turn.take(&turn.lock(&locker, turn.renewed_by_short_requests())).await?;
        line.set(Faults::LOST_REPLIES);
        // This waits for the first renewal and its first retry. After a loss there is none.
        let lost = guard.lost();
        tokio::select! {
            () = renewals(&line, 2, ttl) => {}
            _ = lost.wait() => {}
        }
        line.heal();
        let healed = Instant::now();
        while healed.elapsed() < ttl {
            if !guard.is_held() {
                return Err("C10: an outage of less than a lease lost it".to_owned());
            }
            step().await;
        }
        is_given_back(guard).await
    })
    .await;
}

async fn is_given_back(guard: LockGuard) -> Result<(), Loss> {
    guard.release().await.map_err(loss_of)
}

async fn c10_an_unknown_renewal_extends_nothing(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let ttl = env.ttl(SHORT);
    let guard = take(&env.lock(&locker, "x", LockOptions::new().with_ttl(ttl))).await;
    line.set(Faults::LOST_REPLIES);
    // This is the last call that may have been confirmed: a renewal, where this test runs late.
    let asked = line
        .take_calls()
        .into_iter()
        .rfind(|call| matches!(call.op, Op::Attempt | Op::KeepAlive))
        .unwrap();
    // Where each lock has a connection, an attempt may be more than one request, and the last
    // request proves the lease.
    let by_one_request = env.descriptor().lease_scope != LeaseScope::Connection;
    let proven = if by_one_request { asked.at } else { Instant::now() };
    let mut last = None;
    loop {
        let now = Instant::now();
        if !guard.is_held() {
            break;
        }
        last = Some(now);
        assert!(now < proven + ttl * 3, "C10: held for three leases without a confirmed renewal");
        step().await;
    }
    let held_for = last.map(|last| last - proven);
    assert!(held_for <= Some(ttl), "C10: held for {held_for:?}, the lease is {ttl:?}");
    assert_eq!(at_once("the loss", guard.lost().wait()).await, LossReason::Expired);
    line.cut();
    line.heal();
    drop(guard);
}

async fn c10_a_lost_renewal_is_believed(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = turn.locker().await;
        let b = env.locker().await;
        let past = turn.take(&turn.lock(&a, turn.renewed())).await?;
        env.harness().expire_now(past.name()).await.unwrap();
        let present = take(&turn.lock(&b, long())).await;
        let reason = within(turn.ttl / 2, "the loss", past.lost().wait()).await;
        assert!(!past.is_held());
        assert!(present.is_held());
        drop(past);
        give_back(present).await;
        match reason {
            LossReason::Expired => {
                Err("C10: the store knew it, and it was learned from the clock".to_owned())
            }
            _ => Ok(()),
        }
    })
    .await;
}

/// This case uses bare claims, so that no lease ends meanwhile: a refused renewal loses the lock
/// sooner or later.
async fn c10_a_full_store_ends_no_hold(env: Env) {
    let backend = env.backend().await;
    let other = env.backend().await;
    let readers = (env.flavor() == Flavor::Writer).then_some(Mode::Shared);
    for (name, mode) in
        ["x", "y"].into_iter().zip([Some(env.flavor().mode()), readers].into_iter().flatten())
    {
        let mut holder = env.claim_of(&*backend, name, &long(), OwnerId::random(), mode);
        assert!(
            matches!(holder.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)),
            "{name} is free"
        );
        let mut waiter = env.claim(&*other, name, &long());
        assert!(
            matches!(waiter.attempt(Wait::Queue).await.unwrap(), Attempt::Busy { .. }),
            "{name} is held"
        );
        env.harness().fill().await.unwrap();
        for _ in 0..3 {
            let outcome = holder.renew(None).await;
            assert!(
                matches!(outcome, Ok(RenewalOutcome::Alive(_))),
                "C10: a full store refused to renew {mode:?}: {outcome:?}"
            );
        }
        let released = holder.release().await;
        assert!(
            matches!(released, Ok(Released::Freed)),
            "C7: a full store did not free {mode:?}: {released:?}"
        );
        env.harness().make_room().await.unwrap();
        let look = async || match waiter.attempt(Wait::Queue).await {
            Ok(Attempt::Granted(_)) => Ok(()),
            answer => {
                Err(format!("C8: a waiter is not served after the store was full: {answer:?}"))
            }
        };
        eventually(soon(), look).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
}

async fn c10_nothing_is_renewed_after_its_release(env: Env) {
    const RELEASES: usize = 96;
    let (locker, line) = env.spied_locker().await;
    let rounds = env.rounds(12);
    let mut tasks = JoinSet::new();
    for task in 0..RELEASES / rounds {
        let env = env.clone();
        let locker = locker.clone();
        tasks.spawn(async move {
            let name = format!("x{task}");
            for round in 0..rounds {
                let guard = lock_briefly(&env, &locker, &name, Renewal::Auto).await;
                // The renewal is due when a third of the remaining lease has passed.
                sleep(guard.remaining().mul_f64(rand::random_range(0.25..0.42))).await;
                if round % 2 == 0 { drop(guard.release().await) } else { drop(guard) }
            }
        });
    }
    within(a_minute() + LONGEST_SHORT_LEASE * 12, "the end of the rounds", tasks.join_all()).await;
    within(soon(), "the shutdown", locker.shutdown()).await.unwrap();
    let calls = line.take_calls();
    assert!(calls.iter().any(|call| call.op == Op::KeepAlive), "no renewal at all");
    for (at, release) in calls.iter().enumerate().filter(|(_, call)| call.op == Op::Release) {
        let late =
            calls[at..].iter().find(|call| call.op == Op::KeepAlive && call.owner == release.owner);
        assert!(
            late.is_none(),
            "C10: a renewal {:?} after the release",
            late.map(|late| late.at - release.at)
        );
    }
}

async fn renewals(line: &crate::faulty::Line, count: usize, ttl: Duration) {
    let mut seen = 0;
    eventually(ttl + soon(), async || {
        seen += line.take_calls().iter().filter(|call| call.op == Op::KeepAlive).count();
        if seen >= count { Ok(()) } else { Err(format!("{seen} renewals were sent")) }
    })
    .await;
}
