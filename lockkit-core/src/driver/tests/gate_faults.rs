//! Tests of the process gate under cancellation, trouble and silence: no task hangs, and nothing is
//! left.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};
use std::{future::poll_fn, pin::Pin, task::Poll, thread};

use tokio::{
    task::JoinSet,
    time::{self, Instant},
};

use super::{
    TTL, World, ms, options,
    runtimes::{self, until},
    secs,
};
use crate::{
    Clock,
    error::{Error, ErrorKind},
    fake::{Fault, KINDS, Kind, Op},
    spi::QueuePolicy,
};

/// A waiter is dropped at any instant of a transfer to it. The waiter behind it gets the lock.
#[tokio::test(start_paused = true)]
async fn c6_a_waiter_dropped_at_any_instant_loses_no_turn() {
    for hands_over in [false, true] {
        for cut in 0..14 {
            let world = if hands_over { World::transferring() } else { World::gated(Kind::Ttl) };
            let guard = world.mutex("a").lock().await.unwrap();
            let first = world.mutex("a");
            let second = world.mutex("a");
            let mut leaver = Box::pin(first.lock());
            assert!(poll_once(leaver.as_mut()).await.is_pending());
            let stayer = tokio::spawn(async move { second.lock().await.unwrap() });
            time::sleep(ms(10)).await;
            let release = tokio::spawn(guard.release());
            time::sleep(time::Duration::from_micros(500 * cut)).await;
            let _ = poll_once(leaver.as_mut()).await;
            drop(leaver);
            release.await.unwrap().unwrap();
            let next = time::timeout(secs(2), stayer).await;
            let next =
                next.unwrap_or_else(|_| panic!("C8: stuck after cut {cut}, {hands_over}")).unwrap();
            next.release().await.unwrap();
            drop(first);
            world.clean(&format!("cut {cut}, {hands_over}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_release_dropped_at_any_instant_still_hands_over() {
    for cut in 0..6 {
        let world = World::transferring();
        let guard = world.mutex("a").lock().await.unwrap();
        let mutex = world.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        time::sleep(ms(10)).await;
        let release = time::timeout(time::Duration::from_micros(500 * cut), guard.release()).await;
        drop(release);
        let next = time::timeout(secs(1), waiting)
            .await
            .unwrap_or_else(|_| panic!("stuck after cut {cut}"));
        next.unwrap().release().await.unwrap();
        world.clean(&format!("cut {cut}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c8_an_unpolled_task_is_passed_over() {
    for hands_over in [false, true] {
        let world = if hands_over { World::transferring() } else { World::gated(Kind::Ttl) };
        let guard = world.mutex("a").lock().await.unwrap();
        let first = world.mutex("a");
        let second = world.mutex("a");
        let mut sleeper = Box::pin(first.lock());
        assert!(poll_once(sleeper.as_mut()).await.is_pending());
        let waiting =
            tokio::spawn(async move { second.lock().await.unwrap().release().await.unwrap() });
        time::sleep(ms(10)).await;
        let start = Instant::now();
        guard.release().await.unwrap();
        time::timeout(secs(10), waiting)
            .await
            .expect("C8: nobody comes past the one that sleeps")
            .unwrap();
        assert!(start.elapsed() < secs(4), "{hands_over}: {:?}", start.elapsed());
        // When the task is polled again, it waits again and gets the lock.
        let late = time::timeout(secs(2), sleeper).await.expect("it can still have it").unwrap();
        assert!(late.is_held());
        late.release().await.unwrap();
        drop(first);
        world.clean(&format!("{hands_over}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c13_in_an_outage_each_task_gets_its_error_as_soon_as_alone() {
    for kind in [Kind::Ttl, Kind::Queue] {
        let world = World::gated(kind);
        world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
        let took = world.tells_a_crowd(ErrorKind::Unavailable).await;
        assert!(took < TTL * 2, "one after the other: {took:?}");
        world.store.heal();
        world.mutex("a").lock().await.unwrap().release().await.unwrap();
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c13_a_silent_store_is_reported_to_all_tasks_in_line() {
    let world = World::gated(Kind::Ttl);
    world.store.always(Op::Attempt, Fault::Hang);
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let mutex = world.mutex("a");
        tasks.spawn(async move { mutex.lock_timeout(secs(4)).await.map(drop) });
    }
    let told = tasks.join_all().await;
    let troubled = |error: &Error| error.kind() != ErrorKind::Timeout;
    assert!(told.iter().all(|told| told.as_ref().is_err_and(troubled)), "{told:?}");
    assert!(start.elapsed() < secs(5));
    world.store.heal();
    time::sleep(secs(2)).await;
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_transfer_without_an_answer_is_a_release() {
    for fault in
        [Fault::LoseReply, Fault::Fail(ErrorKind::Unavailable), Fault::Hang, Fault::HangAfter]
    {
        let world = World::transferring();
        let guard = world.mutex("a").lock().await.unwrap();
        let token = guard.fencing_token();
        let mutex = world.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        time::sleep(ms(10)).await;
        world.store.once(Op::Transfer, [fault]);
        guard.release().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        let next = time::timeout(secs(1), waiting)
            .await
            .unwrap_or_else(|_| panic!("stuck: {fault:?}"))
            .unwrap();
        assert!(next.fencing_token() > token);
        next.release().await.unwrap();
        world.clean(&format!("{fault:?}")).await;
    }
}

/// The lease of the waiter is longer than that of the holder, and the store is away for a time
/// between the two.
#[tokio::test(start_paused = true)]
async fn c5_an_unanswered_transfer_to_a_longer_lease_is_undone_when_the_store_is_back() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex_with("a", options().with_ttl(TTL * 20));
    let waiting = tokio::spawn(async move { mutex.lock_timeout(TTL).await });
    time::sleep(ms(10)).await;
    world.store.once(Op::Transfer, [Fault::LoseReply]);
    for op in [Op::Attempt, Op::Release] {
        world.store.always(op, Fault::Fail(ErrorKind::Unavailable));
    }
    assert!(guard.release().await.unwrap_err().is_outcome_unknown());
    let told = waiting.await.unwrap().unwrap_err();
    assert!(told.is_outcome_unknown(), "the store granted the lock to the waiter: {told}");
    time::sleep(TTL * 5).await;
    assert_eq!(world.store.holders(), 1, "the store has done the transfer");
    world.store.heal();
    world.clean("").await;
}

/// The answer of the transfer comes when the waiter asks the store by itself, and the store is away.
#[tokio::test(start_paused = true)]
async fn c5_a_transfer_that_comes_too_late_for_its_waiter_leaves_an_unknown_outcome() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let name = guard.name().clone();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock_timeout(secs(1)).await });
    time::sleep(ms(10)).await;
    world.store.once(Op::Transfer, [Fault::SlowReply(ms(100))]);
    for op in [Op::Attempt, Op::Release] {
        world.store.always(op, Fault::DOWN);
    }
    let release = tokio::spawn(guard.release());
    time::sleep(ms(10)).await;
    world.agenda().gates.open(&name);
    let told = waiting.await.unwrap().unwrap_err();
    assert_eq!(world.store.holders(), 1, "the store has done the transfer");
    assert!(told.is_outcome_unknown(), "the store granted the lock to the waiter: {told}");
    world.store.heal();
    release.await.unwrap().unwrap();
    world.clean("").await;
}

/// The seventeenth release lets others go first: it frees the lock, and its answer is lost.
#[tokio::test(start_paused = true)]
async fn c7_a_yield_without_an_answer_is_a_release() {
    let world = World::transferring();
    world.store.once(Op::Transfer, [Fault::SlowReply(ms(0)); 16]);
    world.store.once(Op::Transfer, [Fault::LoseReply]);
    let guard = world.mutex("a").lock().await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..18 {
        let mutex = world.mutex("a");
        tasks.spawn(async move { mutex.lock().await.unwrap().release().await });
    }
    time::sleep(ms(10)).await;
    guard.release().await.unwrap();
    for released in tasks.join_all().await {
        released.expect("C7: it was held until it was given back");
    }
    assert_eq!(world.store.policies.lock().unwrap()[16], QueuePolicy::QueueFirst);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_transfer_whose_answer_comes_after_its_lease_grants_nothing() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex_with("a", options().with_ttl(ms(100)));
    let waiting = tokio::spawn(async move { mutex.lock().await });
    time::sleep(ms(10)).await;
    world.store.once(Op::Transfer, [Fault::SlowReply(ms(200))]);
    guard.release().await.unwrap();
    let next = waiting.await.unwrap().unwrap();
    assert!(next.is_held());
    next.release().await.unwrap();
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_panics_of_a_transfer_harm_no_other_call() {
    for fault in [Fault::Panic, Fault::PanicAfter] {
        let world = World::transferring();
        let guard = world.mutex("a").lock().await.unwrap();
        let mutex = world.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        time::sleep(ms(10)).await;
        world.store.once(Op::Transfer, [fault]);
        guard.release().await.unwrap();
        let next = time::timeout(secs(1), waiting).await.expect("stuck").unwrap();
        next.release().await.unwrap();
        world.clean(&format!("{fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_shutdown_ends_the_line() {
    for kind in KINDS {
        let world = World::gated(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let mut tasks = JoinSet::new();
        for _ in 0..5 {
            let mutex = world.mutex("a");
            tasks.spawn(async move { mutex.lock().await.unwrap_err().kind() });
        }
        time::sleep(ms(10)).await;
        let locker = world.locker.clone();
        let shutdown = tokio::spawn(async move { locker.shutdown().await });
        for told in time::timeout(ms(100), tasks.join_all()).await.expect("they wait on") {
            assert_eq!(told, ErrorKind::Closed);
        }
        guard.release().await.unwrap();
        shutdown.await.unwrap().unwrap();
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_lock_that_was_transferred_is_renewed() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(10)).await;
    drop(guard);
    let next = waiting.await.unwrap();
    assert_eq!(world.store.holder("a"), Some(next.owner()));
    time::sleep(TTL * 3).await;
    assert!(next.is_held(), "C10: not renewed");
    assert!(world.store.count(Op::KeepAlive) >= 6);
    next.release().await.unwrap();
    world.clean("").await;
}

/// Random cancellations, bounds and faults: holders exclude each other, no task hangs, nothing is
/// left.
#[tokio::test(start_paused = true)]
async fn c1_a_storm_behind_a_gate_never_overlaps() {
    for hands_over in [false, true] {
        let world = if hands_over { World::transferring() } else { World::gated(Kind::Queue) };
        let inside = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for n in 0..30_u64 {
            let mutex = world.mutex("a");
            let inside = Arc::clone(&inside);
            tasks.spawn(async move {
                for round in 0..30_u64 {
                    let patience = ms(1 + (n * 7 + round * 13) % 60);
                    let Ok(Ok(guard)) = time::timeout(patience, mutex.lock()).await else {
                        continue;
                    };
                    assert_eq!(inside.fetch_add(1, SeqCst), 0, "C1");
                    time::sleep(ms((n + round) % 4)).await;
                    inside.fetch_sub(1, SeqCst);
                    if (n + round) % 3 == 0 { drop(guard) } else { drop(guard.release().await) }
                }
            });
        }
        let faults = async {
            for step in 0..40_u64 {
                time::sleep(ms(17)).await;
                let fault = if step % 2 == 0 { Fault::LoseReply } else { Fault::SlowReply(ms(20)) };
                let op =
                    [Op::Transfer, Op::Release, Op::Attempt][usize::try_from(step % 3).unwrap()];
                world.store.once(op, [fault]);
            }
        };
        let ((), ()) = tokio::join!(faults, async {
            while let Some(task) = tasks.join_next().await {
                task.unwrap();
            }
        });
        world.store.heal();
        time::sleep(TTL * 2).await;
        world.clean(&format!("{hands_over}")).await;
    }
}

async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[test]
fn c5_a_transfer_that_was_cut_off_is_followed_by_a_release_only() {
    assert!((0..20).any(|_| a_transfer_is_cut_off()), "the lock was never transferred");
}

/// Returns false if the waiter left the line of the process before the transfer, because this
/// machine stood still. Then the lock is not transferred.
fn a_transfer_is_cut_off() -> bool {
    let world = World::transferring_as(|builder| builder.clock(Clock::Boot));
    let mutex = world.mutex_with("a", options().with_ttl(secs(300)));
    let runtime = runtimes::single();
    let other = runtimes::threads();
    let guard = runtime.block_on(mutex.lock()).unwrap();
    let second = mutex.clone();
    let waiting = other.spawn(async move { second.lock().await.unwrap() });
    let deadline = Instant::now() + secs(30);
    while world.locker.keeper.agenda().gates.waiting(mutex.name()) == 0 {
        if world.store.count(Op::Attempt) > 1 {
            return false;
        }
        assert!(Instant::now() < deadline, "nobody gets into line");
        thread::sleep(ms(1));
    }
    let is_transferred = runtime.block_on(async {
        world.store.once(Op::Transfer, [Fault::HangAfter]);
        drop(guard);
        let ended = || world.store.count(Op::Transfer) + world.store.count(Op::Release) > 0;
        until("the lock is given on", ended).await;
        time::sleep(ms(10)).await;
        world.store.count(Op::Transfer) > 0
    });
    if !is_transferred {
        return false;
    }
    drop(runtime);
    other.block_on(async {
        world.mutex("b").lock().await.unwrap().release().await.unwrap(); // the next keeper
        let next = time::timeout(secs(60), waiting).await.expect("stuck").unwrap();
        assert_eq!(world.store.count(Op::Transfer), 1);
        next.release().await.unwrap();
    });
    drop(mutex);
    other.block_on(async { time::sleep(ms(50)).await });
    assert_eq!(world.store.holders(), 0);
    true
}
