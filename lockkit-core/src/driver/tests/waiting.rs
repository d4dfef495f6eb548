//! C8: tests of the bound on waiting.

use std::time::Duration;

use tokio::time::{self, Instant};

use super::{World, manual, ms, options, secs};
use crate::{
    Locker,
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
};

#[tokio::test(start_paused = true)]
async fn c8_a_wait_ends_at_its_bound() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let start = Instant::now();
        let error = world.mutex_with("a", options().with_wait(ms(150))).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(
            (148..160).contains(&start.elapsed().as_millis()),
            "{kind:?} {:?}",
            start.elapsed()
        );
        let start = Instant::now();
        assert_eq!(
            world.mutex("a").lock_timeout(ms(150)).await.unwrap_err().kind(),
            ErrorKind::Timeout
        );
        assert!(
            (148..160).contains(&start.elapsed().as_millis()),
            "{kind:?} {:?}",
            start.elapsed()
        );
        time::sleep(ms(50)).await;
        let releases = world.store.count(Op::Release);
        assert_eq!(
            releases,
            if kind.has_queue() { 2 } else { 0 },
            "{kind:?}: no attempt was abandoned"
        );
        drop(guard);
        world.clean(&format!("{kind:?}")).await;
    }
}

/// The error is the same, however the bound was set.
#[tokio::test(start_paused = true)]
async fn c8_a_bound_that_passes_is_a_timeout() {
    let world = World::gated(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let given = world.mutex("a").lock_timeout(ms(150)).await.unwrap_err();
    let patient = world.mutex_with("a", options().with_wait(ms(150)));
    let set = patient.lock().await.unwrap_err();
    for error in [given, set] {
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("within 150ms"), "{error}");
        assert!(!error.is_outcome_unknown());
    }
    let start = Instant::now();
    let sooner = patient.lock_timeout(ms(20)).await.unwrap_err();
    assert_eq!(sooner.kind(), ErrorKind::Timeout);
    assert!(start.elapsed() < ms(30), "the bound of the call goes before that of the options");
    assert!(patient.try_lock().await.unwrap().is_none(), "who asks once gets an answer");
    drop((guard, patient));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_wait_ends_at_its_bound_also_when_the_store_is_silent() {
    for kind in KINDS {
        for fault in [Fault::Hang, Fault::HangAfter] {
            let world = World::new(kind);
            world.store.always(Op::Attempt, fault);
            let start = Instant::now();
            let outcome = world.mutex("a").lock_timeout(ms(150)).await;
            assert!(start.elapsed() < ms(153), "{kind:?} {:?}", start.elapsed());
            if kind == Kind::Pinned {
                let error = outcome.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Timeout, "silence looks like patience");
            } else {
                let error = outcome.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                assert!(error.is_outcome_unknown());
            }
            // The attempt runs until its own budget ends. Then its effect is removed.
            world.store.heal();
            world.clean(&format!("{kind:?}, {fault:?}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c8_a_store_that_falls_silent_during_a_wait_does_not_delay_its_end() {
    for kind in [Kind::Ttl, Kind::Pinned] {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let start = Instant::now();
        let mutex = world.mutex("a");
        let (outcome, ()) = tokio::join!(mutex.lock_timeout(ms(1_500)), async {
            time::sleep(ms(700)).await;
            world.store.always(Op::Attempt, Fault::HangAfter);
        });
        assert!(start.elapsed() < ms(1_503), "{kind:?} {:?}", start.elapsed());
        drop(outcome);
        world.store.heal();
        drop((guard, mutex));
        time::sleep(secs(1)).await;
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c8_a_lock_that_is_freed_shortly_before_the_bound_is_obtained() {
    for kind in KINDS {
        for before in [8, 20, 100] {
            let world = World::new(kind);
            let guard = world.mutex("a").lock().await.unwrap();
            let mutex = world.mutex("a");
            let (granted, ()) = tokio::join!(mutex.lock_timeout(secs(2)), async {
                time::sleep(secs(2) - ms(before)).await;
                drop(guard);
            });
            let granted = granted.map(drop);
            assert!(granted.is_ok(), "{kind:?}, freed {before} ms before the bound");
            drop(mutex);
            world.clean(&format!("{kind:?}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c8_no_attempt_is_begun_that_can_only_be_abandoned() {
    for wait in [ms(65), ms(150), ms(151), ms(999)] {
        let world = World::new(Kind::Ttl);
        world.store.set_latency(ms(20));
        let guard = world.mutex("a").lock().await.unwrap();
        let start = Instant::now();
        assert_eq!(
            world.mutex("a").lock_timeout(wait).await.unwrap_err().kind(),
            ErrorKind::Timeout
        );
        let last = *world.store.sent(Op::Attempt).last().unwrap() - start;
        assert!(last + ms(20) <= wait + ms(1), "an attempt at {last:?} of {wait:?}");
        // An attempt that ends two round trips before the bound is the last. It may have begun one
        // round trip before that. The jitter decides, so this is the worst case.
        assert!(last + ms(3 * 20 + 3) >= wait, "the last attempt came early: {last:?} of {wait:?}");
        time::sleep(ms(200)).await;
        assert_eq!(world.store.count(Op::Release), 0, "nothing was left to take back");
        drop(guard);
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_zero_bound_asks_once() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock_timeout(Duration::ZERO).await.unwrap();
    assert_eq!(
        world.mutex("a").lock_timeout(Duration::ZERO).await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    assert_eq!(world.store.count(Op::Attempt), 2);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_lost_wake_up_costs_one_poll_and_no_hang() {
    for kind in [Kind::Queue, Kind::Push] {
        let world = World::new(kind);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        let mutex = world.mutex("a");
        let start = Instant::now();
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        time::sleep(ms(100)).await;
        world.store.evict("a");
        drop(waiting.await.unwrap());
        assert!(
            start.elapsed() < ms(6_300),
            "{kind:?}: a poll with its jitter, not {:?}",
            start.elapsed()
        );
        drop(guard);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c8_a_wait_of_zero_asks_once() {
    for kind in KINDS {
        let world = World::new(kind);
        let mutex = world.mutex_with("a", options().with_wait(Duration::ZERO));
        let guard = mutex.lock().await.expect("it was free");
        assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Timeout, "{kind:?}");
        drop((guard, mutex));
        world.clean(&format!("{kind:?}")).await;
    }
}

/// A loop takes locks of a store that answers at once, and never waits. The guards that it drops
/// must not pile up.
#[tokio::test]
async fn a_busy_loop_of_locks_gives_way_to_the_keeper() {
    let locker = Locker::memory();
    let inside = locker.clone();
    let most = tokio::spawn(async move {
        let mut most = 0;
        for n in 0..2_000 {
            drop(inside.mutex(&n.to_string()).unwrap().lock().await.unwrap());
            most = most.max(inside.keeper.locker().live_claims());
        }
        most
    });
    let most = most.await.unwrap();
    assert!(most < 500, "{most} locks that nobody wants any more");
    locker.shutdown().await.unwrap();
}
