//! Tests of rare cases of the process gate: tasks that do not look, are late, or get a turn by time
//! alone.

use std::{
    future::{Future as _, poll_fn},
    sync::{Arc, Mutex},
    task::Poll,
    thread,
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::{
    task::{JoinSet, unconstrained},
    time::{self, Instant},
};

use super::{TTL, World, checked, manual, ms, options, runtimes, secs};
use crate::{
    Clock,
    driver::{
        acquire::acquire,
        release::release_held,
        request::{Bound, Request},
    },
    error::ErrorKind,
    fake::{Fault, Kind, Op, lock},
    observe::{Event, Observer, What},
    spi::{QueuePolicy, Released},
};

/// Polls a future once.
macro_rules! poll {
    ($future:expr) => {
        poll_fn(|cx| Poll::Ready($future.as_mut().poll(cx))).await
    };
}

#[tokio::test(start_paused = true)]
async fn c8_an_unpolled_release_delays_no_waiter() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(10)).await;
    let mut release = Box::pin(guard.release());
    assert!(poll!(release).is_pending());
    let next = time::timeout(TTL * 3, waiting)
        .await
        .expect("the one who was to have it is stuck")
        .unwrap();
    drop(release);
    time::sleep(ms(100)).await;
    // The transfer to the waiter under another owner was given back. The lock that the waiter got
    // by itself was not.
    assert_eq!(world.store.holder("a"), Some(next.owner()));
    assert!(next.is_held());
    next.release().await.unwrap();
    world.clean("").await;
}

/// The lock that was handed to the call was taken back meanwhile.
#[tokio::test(start_paused = true)]
async fn c8_a_call_first_polled_after_its_bound_finds_the_lock_taken() {
    // Before the bound, and so close to it that no answer comes in time.
    for late in [ms(1_200), ms(1_499), Duration::from_micros(1_499_900)] {
        let world = World::transferring();
        let guard = world.mutex("a").lock().await.unwrap();
        let mutex = world.mutex("a");
        let bound = if late < ms(1_400) { ms(500) } else { ms(1_510) };
        let mut waiting = Box::pin(mutex.lock_timeout(bound));
        time::timeout(ms(10), waiting.as_mut()).await.unwrap_err();
        guard.release().await.unwrap();
        assert_eq!(world.store.holders(), 1, "it was not transferred");
        time::sleep(late).await;
        assert_eq!(world.store.holders(), 0, "it was not taken back");
        let error = waiting.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{late:?}");
        drop(mutex);
        world.clean(&format!("{late:?}")).await;
    }
}

/// A task finds the store in trouble at the moment when a transfer fails.
#[tokio::test(start_paused = true)]
async fn c8_an_offer_that_fails_while_the_queue_moves_strands_no_waiter() {
    let world = World::transferring();
    let mutex = world.mutex("a");
    let options = checked(options());
    let request = Request { gated: true, ..world.request(&mutex, &options) };
    let held = acquire(request, Bound::Forever).await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let mutex = world.mutex("a");
        async move { mutex.lock().await.unwrap() }
    });
    time::sleep(ms(10)).await;
    let agenda = world.agenda();
    let gates = &agenda.gates;
    let transfer = gates.transfer(&held).unwrap();
    let waiter = Arc::clone(transfer.waiter().unwrap());
    assert!(waiter.promise());
    gates.open(mutex.name());
    waiter.break_promise();
    drop((transfer, waiter));
    world.agenda().retire(&held, None);
    assert_eq!(release_held(world.agenda(), held).await.unwrap(), Released::Freed);
    let next =
        time::timeout(TTL, waiting).await.expect("C8: it is in no line and has no turn").unwrap();
    next.release().await.unwrap();
    drop(mutex);
    world.clean("").await;
}

/// The runtimes of the background task and of the waiter both stop for longer than the lease after
/// a transfer.
#[test]
fn c8_a_transfer_that_is_seen_after_its_lease_is_no_grant() {
    let world = World::transferring_as(|builder| builder.clock(Clock::Boot));
    // No request is late, however late the threads are.
    world.store.set_latency(ms(0));
    let keepers = runtimes::single();
    let callers = runtimes::single();
    let guard = keepers.block_on(world.mutex("a").lock()).unwrap();
    let mutex = world.mutex_with("a", options().with_ttl(ms(100)));
    callers.block_on(async {
        let mut waiter = Box::pin(mutex.lock_timeout(ms(200)));
        assert!(poll!(waiter).is_pending());
        guard.release().await.unwrap();
        thread::sleep(ms(120));
        // Only the background task would give the lock back, and it does not run now.
        match waiter.await {
            Ok(guard) => assert!(guard.is_held(), "it was told that it has the lock"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout),
        }
    });
    drop(mutex);
    keepers.block_on(world.clean(""));
}

#[tokio::test(start_paused = true)]
async fn a_gate_behind_a_long_hold_gets_over_its_trouble() {
    let world = World::gated(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let first = world.mutex("a");
    world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
    assert!(first.lock_timeout(secs(1)).await.is_err());
    world.store.heal();
    world.store.forget_log();
    let mut tasks = JoinSet::new();
    for _ in 0..20 {
        let mutex = world.mutex("a");
        tasks.spawn(async move { mutex.lock_timeout(secs(1)).await.map(drop) });
        time::sleep(ms(5)).await;
    }
    tasks.join_all().await;
    // Only one task at a time polls the store.
    assert!(world.store.count(Op::Attempt) < 40, "{} requests", world.store.count(Op::Attempt));
    guard.release().await.unwrap();
    drop(first);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_a_permanent_error_reaches_all_waiters_at_once() {
    let world = World::gated(Kind::Ttl);
    world.store.set_latency(ms(200));
    world.store.always(Op::Attempt, Fault::Fail(ErrorKind::PermissionDenied));
    let took = world.tells_a_crowd(ErrorKind::PermissionDenied).await;
    assert!(took < ms(500), "one after the other: {took:?}");
    world.store.heal();
    world.clean("").await;
}

#[derive(Debug, Default)]
struct Ear(Mutex<(usize, usize)>);

impl Observer for Ear {
    fn on_event(&self, event: &Event<'_>) {
        let mut heard = lock(&self.0);
        match event.what {
            What::Acquired { .. } => heard.0 += 1,
            What::GivenBack { .. } | What::Lost { .. } => heard.1 += 1,
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_not_acquired_is_not_released() {
    let ear = Arc::new(Ear::default());
    let heard: Arc<Ear> = Arc::clone(&ear);
    let world = World::transferring_as(|builder| builder.observer(heard));
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let mut sleeper = Box::pin(mutex.lock());
    assert!(poll!(sleeper).is_pending());
    guard.release().await.unwrap();
    time::sleep(secs(2)).await;
    drop(sleeper);
    drop(mutex);
    world.clean("").await;
    assert_eq!(*lock(&ear.0), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn c14_a_try_after_a_forced_release_gets_the_lock() {
    let world = World::gated(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let freed = world.locker.force_release(guard.name(), guard.fencing_token()).await.unwrap();
    assert_eq!(freed, Released::Freed);
    let next = world.mutex("a").try_lock().await.unwrap();
    assert!(next.is_some(), "nobody has it any more");
    drop((guard, next));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_hold_freed_during_its_transfer_admits_the_next_waiter() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let name = guard.name().clone();
    let token = guard.fencing_token();
    let mutex = world.mutex("a");
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    time::sleep(ms(1)).await;
    world.store.once(Op::Transfer, [Fault::Hang]);
    let release = tokio::spawn(guard.release());
    time::sleep(ms(1)).await;
    assert_eq!(world.store.count(Op::Transfer), 1);
    assert_eq!(world.locker.force_release(&name, token).await.unwrap(), Released::Freed);
    let _ = release.await.unwrap();
    let ended = Instant::now();
    waiter.await.unwrap();
    assert!(ended.elapsed() < ms(5), "{:?}", ended.elapsed());
    world.clean("").await;
}

/// The rest of a release that was cut off does not know to whom it asked to transfer the lock.
#[tokio::test(start_paused = true)]
async fn c5_a_transfer_to_a_longer_lease_that_was_cut_off_is_undone_when_the_store_is_back() {
    let world = World::transferring();
    let mutex = world.mutex("a");
    let checked = checked(options());
    let request = Request { gated: true, ..world.request(&mutex, &checked) };
    let held = acquire(request, Bound::Forever).await.unwrap().unwrap();
    let longer = world.mutex_with("a", options().with_ttl(TTL * 20));
    let waiting = tokio::spawn(async move { longer.lock_timeout(TTL).await });
    time::sleep(ms(10)).await;
    world.store.once(Op::Transfer, [Fault::HangAfter]);
    for op in [Op::Attempt, Op::Release] {
        world.store.always(op, Fault::Fail(ErrorKind::Unavailable));
    }
    world.agenda().retire(&held, None);
    time::timeout(ms(10), release_held(world.agenda(), held)).await.unwrap_err();
    let told = waiting.await.unwrap().unwrap_err();
    assert!(told.is_outcome_unknown(), "the store granted the lock to the waiter: {told}");
    time::sleep(TTL * 5).await;
    assert_eq!(world.store.holders(), 1, "the store has done the transfer");
    world.store.heal();
    drop(mutex);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_takes_no_lock_from_its_new_holder() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let mut waiter = Box::pin(mutex.lock());
    assert!(poll!(waiter).is_pending());
    guard.release().await.unwrap();
    let token = world.store.holder("a").unwrap();
    world.store.wake_successor();
    time::sleep(ms(20)).await;
    let next = waiter.as_mut().await.unwrap();
    drop(waiter);
    assert_eq!(next.owner(), token, "it lost what it had");
    drop((next, mutex));
    world.clean("").await;
}

/// 10,000 waiters leave at once.
#[tokio::test(start_paused = true)]
async fn c6_to_leave_a_long_line_costs_little() {
    let world = World::gated(Kind::Queue);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    // Unconstrained, because otherwise tokio's budget lets only the first 128 of them get into
    // line.
    let wait = |mutex: crate::Mutex| Box::pin(unconstrained(async move { mutex.lock().await }));
    let mut waiters: Vec<_> = (0..10_000).map(|_| wait(mutex.clone())).collect();
    for waiter in &mut waiters {
        assert!(poll!(waiter).is_pending());
    }
    // The processor time of this thread only, because other threads may use the processor
    // meanwhile.
    let worked = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let start = worked();
    // The last waiters in line leave first.
    while let Some(waiter) = waiters.pop() {
        drop(waiter);
    }
    let took = worked() - start;
    assert!(took < ms(400), "{took:?}");
    drop((waiters, mutex));
    guard.release().await.unwrap();
    world.clean("").await;
}

/// The end of one hold lets the next task in at once, without a look at the clock.
#[tokio::test(start_paused = true)]
async fn c8_each_end_of_a_hold_admits_the_next_waiter_at_once() {
    for way in ["release", "drop", "lost", "refused", "cancelled"] {
        let world = World::gated(Kind::Push);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        let next = world.mutex("a");
        let mut leaver = Box::pin(async { world.mutex("a").lock().await });
        if way == "cancelled" {
            world.store.set_latency(ms(50));
            drop(guard.release().await);
            let mut rival = Box::pin(async { world.mutex("a").lock().await });
            assert!(poll!(rival).is_pending());
            let waiting = tokio::spawn(async move { next.lock().await.unwrap() });
            time::sleep(ms(5)).await;
            world.store.forget_log();
            drop(rival);
            time::sleep(ms(5)).await;
            assert_eq!(world.store.count(Op::Attempt), 1, "{way}");
            drop(leaver);
            drop(waiting.await.unwrap());
            world.clean(way).await;
            continue;
        }
        assert!(poll!(leaver).is_pending());
        let waiting = tokio::spawn(async move { next.lock().await.unwrap() });
        time::sleep(ms(5)).await;
        drop(leaver); // the first in line, and not the last
        let start = Instant::now();
        let left = match way {
            "release" => {
                guard.release().await.unwrap();
                None
            }
            "lost" => {
                world.store.evict_all();
                guard.lost().await;
                Some(guard)
            }
            "refused" => {
                world.store.once(Op::Release, [Fault::LoseReply]);
                drop(guard);
                None
            }
            _ => {
                drop(guard);
                None
            }
        };
        let next = time::timeout(secs(2), waiting).await.expect("stuck").unwrap();
        assert!(start.elapsed() < ms(60), "{way}: {:?}", start.elapsed());
        drop((left, next));
        world.clean(way).await;
    }
}

/// The lock is released at once, and not only after it stayed unclaimed for long.
#[tokio::test(start_paused = true)]
async fn c6_a_transfer_to_a_cancelled_call_is_released_at_once() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let first = world.mutex("a");
    let second = world.mutex("a");
    let mut leaver = Box::pin(first.lock());
    assert!(poll!(leaver).is_pending());
    let waiting = tokio::spawn(async move { second.lock().await.unwrap() });
    time::sleep(ms(5)).await;
    world.store.set_latency(ms(20));
    let start = Instant::now();
    let release = tokio::spawn(guard.release());
    time::sleep(ms(5)).await;
    drop(leaver);
    release.await.unwrap().unwrap();
    let next = time::timeout(secs(2), waiting).await.expect("stuck").unwrap();
    assert!(start.elapsed() < ms(120), "{:?}", start.elapsed());
    world.store.set_latency(ms(2));
    drop((next, first));
    world.clean("").await;
}

/// While a task of this process waits in the store, the lock goes by way of the store.
#[tokio::test(start_paused = true)]
async fn c12_no_transfer_overtakes_a_waiter_in_the_store() {
    let world = World::transferring();
    let guard = world.mutex("a").lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..3 {
        let mutex = world.mutex("a");
        let order = Arc::clone(&order);
        tasks.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            lock(&order).push(n);
            guard.release().await.unwrap();
        });
        time::sleep(ms(5)).await;
    }
    time::sleep(ms(600)).await;
    guard.release().await.unwrap();
    tasks.join_all().await;
    assert_eq!(*lock(&order), [0, 1, 2]);
    world.clean("").await;
}

/// A grant by the store starts a new count of transfers.
#[tokio::test(start_paused = true)]
async fn c12_a_grant_of_the_store_begins_the_count_anew() {
    let world = World::transferring();
    let mut tasks = JoinSet::new();
    for _ in 0..60 {
        let mutex = world.mutex("a");
        tasks.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    tasks.join_all().await;
    let yields = lock(&world.store.policies)
        .iter()
        .filter(|policy| **policy == QueuePolicy::QueueFirst)
        .count();
    assert_eq!(yields, 3);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c4_a_transfer_adds_the_token_base() {
    let world = World::transferring_as(|builder| builder.token_base(1_000));
    let guard = world.mutex("a").lock().await.unwrap();
    assert_eq!(guard.fencing_token().get(), 1_001);
    let other = world.mutex("a");
    let waiting = tokio::spawn(async move { other.lock().await.unwrap() });
    time::sleep(ms(5)).await;
    guard.release().await.unwrap();
    let next = waiting.await.unwrap();
    assert_eq!(next.fencing_token().get(), 1_002);
    drop(next);
    world.clean("").await;
}

/// The loss signal outlives the guard, and the cleanup takes long.
#[tokio::test(start_paused = true)]
async fn c8_neither_a_signal_nor_a_slow_clean_up_keeps_the_gate_closed() {
    let world = World::gated(Kind::Push);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let signal = guard.lost();
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(5)).await;
    guard.release().await.unwrap();
    let guard = time::timeout(ms(50), waiting).await.expect("its signal keeps it closed").unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(5)).await;
    world.store.once(Op::Release, [Fault::Hang]);
    world.store.evict_all();
    let next = time::timeout(ms(50), waiting).await.expect("its clean-up keeps it closed").unwrap();
    drop((guard, next, signal));
    world.clean("").await;
}
