//! C8: waits are bounded, waiters are woken, and no waiter hangs.

use std::time::{Duration, Instant};

use lockkit_core::Error;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    case::{Needs, cases},
    env::{Env, SHORT, becomes_free, give_back, is_refused, long, take},
    faulty::Op,
    harness::{Faults, Link as _},
    lock::{AnyLock, in_time},
    wait::{STEP, a_minute, eventually, slack, soon, within},
};

cases! {
    c8_contention_is_no_error: Needs::EXCLUSIVE,
        "a backend that reports a busy lock as an error";
    c8_a_wait_bound_is_kept: Needs::EXCLUSIVE,
        "a bound that is rounded up to the poll interval, or ignored while a request hangs";
    c8_a_bound_is_kept_while_the_store_is_out_of_reach: Needs::EXCLUSIVE,
        "a backend that reconnects by a call that blocks the thread or can't be cancelled";
    c8_a_wait_that_timed_out_is_out_of_the_queue: Needs::EXCLUSIVE,
        "a queue entry that outlives its call, so the store grants the lock to no caller";
    c8_a_waiter_gets_it_after_a_release: Needs::EXCLUSIVE,
        "a waiter that does not notice the release";
    c8_a_waiter_gets_it_after_an_expiry: Needs::EXCLUSIVE.lease(),
        "a waiter that only releases wake, and expired leases do not";
    c8_a_push_beats_the_poll: Needs::EXCLUSIVE.push(),
        "a store that claims to send wake-ups, and sends none";
    c8_a_lost_wake_up_costs_only_latency: Needs::EXCLUSIVE,
        "a waiter that never polls";
    c8_a_spurious_wake_up_grants_nothing: Needs::EXCLUSIVE,
        "a waiter that takes a wake-up for a grant, and does not ask the store";
    c8_every_waiter_ends: Needs::EXCLUSIVE,
        "a wake-up that reaches only a waiter that can't use it";
    c8_one_release_does_not_wake_all: Needs::EXCLUSIVE.push().fair(),
        "a broadcast, so each release costs one request of each waiter";
}

async fn c8_contention_is_no_error(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let held = take(&env.lock(&a, "x", long())).await;
    let other = env.lock(&b, "x", long());
    assert!(other.try_lock().await.unwrap().is_none());
    is_refused(async || other.lock_timeout(env.patience()).await).await;
    let bounded = env.lock(&b, "x", long().with_wait(env.patience()));
    is_refused(async || in_time(bounded.lock().await)).await;
    give_back(held).await;
}

async fn c8_a_wait_bound_is_kept(env: Env) {
    let a = env.locker().await;
    let (b, line) = env.spied_locker().await;
    let held = take(&env.lock(&a, "x", long())).await;
    let other = env.lock(&b, "x", long());
    for bound in [STEP, env.moment(), env.patience()] {
        for time in 1.. {
            let start = Instant::now();
            let answer = other.lock_timeout(bound).await;
            took(start, bound);
            // The store may have had no time to answer that the lock is taken, in such a short
            // bound or on a busy machine.
            let unanswered = answer.as_ref().is_err_and(Error::is_outcome_unknown);
            assert!(unanswered || answer.as_ref().unwrap().is_none(), "C1: granted twice");
            if !unanswered || bound <= STEP {
                break;
            }
            assert!(time < 50, "C8: no answer within {bound:?}, {time} times: {answer:?}");
        }
    }
    give_back(held).await;
    // A silent store must not delay the call either.
    line.set(Faults::SILENCE);
    let start = Instant::now();
    let answer = other.lock_timeout(env.moment()).await;
    took(start, env.moment());
    assert!(!matches!(answer, Ok(Some(_))), "a grant without a reply");
    line.cut();
    line.heal();
}

async fn c8_a_bound_is_kept_while_the_store_is_out_of_reach(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let op_timeout = env.patience() * 2;
    let lock = env.lock(&locker, "x", long().with_op_timeout(op_timeout));
    // A call that keeps only the bound of its request would return too late here.
    let patient = env.lock(&locker, "x", long());
    let waits_inside_a_request = !env.descriptor().max_patience.is_zero();
    // The store answers with errors, or does not answer.
    for faults in [Faults { refuse: true, ..Faults::NONE }, Faults::SILENCE] {
        link.set(faults);
        link.cut();
        for bound in [env.moment(), env.patience()] {
            if faults.refuse {
                out_of_reach(&env, &patient, bound).await;
                continue;
            }
            let start = Instant::now();
            let answer = patient.lock_timeout(bound).await;
            ended(start, bound);
            // There, a waiter hears nothing from the store while a lock is taken, so silence looks
            // the same.
            let looks_taken = waits_inside_a_request && matches!(answer, Ok(None));
            assert!(
                answer.is_err() || looks_taken,
                "C13: out of reach by {faults:?}, it is told: {answer:?}"
            );
        }
        let start = Instant::now();
        let answer = lock.try_lock().await;
        ended(start, op_timeout);
        assert!(answer.is_err(), "C13: out of reach by {faults:?}, it is told: {answer:?}");
        link.cut();
        link.heal();
        becomes_free(&lock).await;
    }
}

/// The error of a bounded call while the store refuses connections. On a busy machine the refusal
/// may come after a short bound. A call that waits inside a request then answers as for a taken
/// lock, so this doubles the bound.
pub(super) async fn out_of_reach(env: &Env, lock: &AnyLock, mut bound: Duration) -> Error {
    let waits_inside_a_request = !env.descriptor().max_patience.is_zero();
    loop {
        let start = Instant::now();
        let answer = lock.lock_timeout(bound).await;
        ended(start, bound);
        match answer {
            Err(error) => return error,
            Ok(None) if waits_inside_a_request && bound < slack() / 3 => bound *= 2,
            answer => panic!("C13: refused by the store, it is told: {answer:?}"),
        }
    }
}

#[track_caller]
fn ended(start: Instant, bound: Duration) {
    let took = start.elapsed();
    assert!(took < bound + slack(), "C8: came back after {took:?}, the bound is {bound:?}");
}

#[track_caller]
fn took(start: Instant, bound: Duration) {
    let took = start.elapsed();
    assert!(took >= bound, "C8: gave up after {took:?} of {bound:?}");
    ended(start, bound);
}

async fn c8_a_wait_that_timed_out_is_out_of_the_queue(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let c = env.locker().await;
    let held = take(&env.lock(&a, "x", long())).await;
    let waiter = env.lock(&b, "x", long());
    is_refused(async || waiter.lock_timeout(env.patience()).await).await;
    give_back(held).await;
    let last = env.lock(&c, "x", long());
    give_back(within(soon(), "the next grant", last.lock()).await.unwrap()).await;
}

async fn c8_a_waiter_gets_it_after_a_release(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let holder = env.lock(&a, "x", long());
    let waiter = env.lock(&b, "x", long());
    for pause in env.delays() {
        let held = take(&holder).await;
        let wait = async {
            within(env.poll() + slack(), "the waiter's grant", waiter.lock()).await.unwrap()
        };
        let release = async {
            sleep(pause).await;
            give_back(held).await
        };
        let (next, _) = tokio::join!(wait, release);
        give_back(next).await;
    }
}

async fn c8_a_waiter_gets_it_after_an_expiry(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let short = env.fleeting(SHORT);
    let held = take(&env.lock(&a, "x", short.clone())).await;
    let bound = short.ttl() + env.descriptor().takeover_delay + env.poll();
    let next = within(bound, "the waiter's grant", env.lock(&b, "x", long()).lock()).await.unwrap();
    assert!(!held.is_held(), "C3: the past holder still thinks that it has it");
    give_back(next).await;
}

async fn c8_a_push_beats_the_poll(env: Env) {
    const ROUNDS: usize = 5;
    let a = env.locker().await;
    let (b, line) = env.spied_locker().await;
    let holder = env.lock(&a, "x", long());
    let waiter = env.lock(&b, "x", long());
    let mut woken = 0;
    let mut waits = Vec::new();
    for _ in 0..ROUNDS {
        let held = take(&holder).await;
        let wait = async {
            let next = waiter.lock().await.unwrap();
            woken += usize::from(line.take_wake_ups() > 0);
            (Instant::now(), next)
        };
        let release = async {
            env.queued(1, async || holder.inspect().await).await;
            // The waiter's subscription may come after its place in the queue.
            env.pause().await;
            line.take_wake_ups();
            give_back(held).await;
            // A server that stalls before it answers the release delays the wake-up too.
            Instant::now()
        };
        let ((granted, next), released) = tokio::join!(wait, release);
        waits.push(granted.saturating_duration_since(released));
        give_back(next).await;
    }
    // Sometimes a poll happens to come first.
    assert!(woken > ROUNDS / 2, "C8: {woken} of {ROUNDS} waiters were woken, after {waits:?}");
    waits.sort();
    let best = waits[1];
    let poll = env.descriptor().poll.max;
    assert!(
        best < (poll / 4).max(env.moment()),
        "C8: woken after {waits:?}, a poll of {poll:?} would do as well"
    );
}

async fn c8_a_lost_wake_up_costs_only_latency(env: Env) {
    let a = env.locker().await;
    let (b, line) = env.spied_locker().await;
    line.set_mute(true);
    let held = take(&env.lock(&a, "x", long())).await;
    let waiter = env.lock(&b, "x", long());
    let watch = waiter.clone();
    let waiting = tokio::spawn(async move { waiter.lock().await });
    env.queued(1, async || watch.inspect().await).await;
    give_back(held).await;
    let next = within(env.poll() + slack(), "the grant that nobody announced", waiting)
        .await
        .unwrap()
        .unwrap();
    give_back(next).await;
}

async fn c8_a_spurious_wake_up_grants_nothing(env: Env) {
    let a = env.locker().await;
    let (b, line) = env.spied_locker().await;
    let waits_inside = !env.descriptor().max_patience.is_zero();
    let held = take(&env.lock(&a, "x", long())).await;
    let waiter = env.lock(&b, "x", long());
    let waiting = tokio::spawn(async move { waiter.lock().await });
    for _ in 0..3 {
        drop(line.take_calls());
        eventually(soon(), async || {
            line.wake_all();
            match attempts(&line) {
                // A waiter inside the store continues to wait.
                0 if waits_inside => Ok(()),
                0 => Err("a wake-up leads to no attempt".to_owned()),
                _ => Ok(()),
            }
        })
        .await;
        env.pause().await;
        assert!(!waiting.is_finished(), "C8: a wake-up was taken for a grant");
    }
    give_back(held).await;
    let next = within(env.poll() + slack(), "the waiter's grant", waiting).await.unwrap().unwrap();
    line.wake_all();
    assert!(next.is_held());
    give_back(next).await;
}

async fn c8_every_waiter_ends(env: Env) {
    const WAITERS: usize = 12;
    let lockers = [env.locker().await, env.locker().await];
    let held = take(&env.lock(&lockers[0], "x", long())).await;
    let mut waiters = JoinSet::new();
    for n in 0..WAITERS {
        let patience = env.moment() / 20;
        let lock = env.lock(&lockers[n % 2], "x", long());
        waiters.spawn(async move {
            // A quarter of the waiters give up and come back, between the others.
            if n % 4 == 0 {
                // This is an error if the store had no time to answer.
                drop(lock.lock_timeout(patience).await);
            }
            give_back(lock.lock().await.unwrap()).await
        });
    }
    env.pause().await;
    give_back(held).await;
    within(a_minute(), "the end of the queue", waiters.join_all()).await;
}

async fn c8_one_release_does_not_wake_all(env: Env) {
    const WAITERS: usize = 24;
    let a = env.locker().await;
    let (b, line) = env.spied_locker().await;
    let held = take(&env.lock(&a, "x", long())).await;
    // Each task waits in the store by itself.
    let lock = env.lock(&b.with_process_gate(false), "x", long());
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let lock = lock.clone();
        waiters.spawn(async move { lock.lock().await.unwrap() });
    }
    env.queued(WAITERS, async || lock.inspect().await).await;
    // The store may not have answered the last waiters yet.
    env.pause().await;
    line.take_wake_ups();
    give_back(held).await;
    let mut next = within(soon(), "the next grant", waiters.join_next()).await;
    // If the release wakes the other waiters, it wakes them at the same time.
    env.pause().await;
    let woken = line.take_wake_ups();
    assert!(woken <= WAITERS / 3, "C8: one release woke {woken} of {WAITERS} waiters");
    while let Some(guard) = next {
        give_back(guard.unwrap()).await;
        next = within(soon(), "the next grant", waiters.join_next()).await;
    }
}

fn attempts(line: &crate::faulty::Line) -> usize {
    line.take_calls().iter().filter(|call| call.op == Op::Attempt).count()
}
