//! Tests of a store in trouble: which requests are repeated, for how long, and which error a caller
//! gets.

use tokio::time::{self, Instant};

use super::{TTL, World, ms, options, secs};
use crate::{
    error::{ErrorKind, ErrorStatus},
    fake::{Fault, KINDS, Kind, Op},
    spi::Lease,
};

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_bound_outlives_trouble_that_is_shorter_than_the_ttl() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
        let mutex = world.mutex("a");
        let (granted, ()) = tokio::join!(mutex.lock(), async {
            time::sleep(ms(2_000)).await;
            world.store.heal();
        });
        granted.unwrap().release().await.unwrap();
        drop(mutex);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_without_a_bound_ends_when_trouble_lasts_for_the_ttl_and_three_timeouts() {
    for (ttl, op_timeout, patience) in [(TTL, secs(1), TTL), (TTL, ms(1_500), ms(4_500))] {
        for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Hang] {
            let world = World::new(Kind::Ttl);
            world.store.always(Op::Attempt, fault);
            let mutex = world.mutex_with("a", options().with_ttl(ttl).with_op_timeout(op_timeout));
            let start = Instant::now();
            let error = mutex.lock().await.unwrap_err();
            assert_eq!(
                (error.kind(), error.status()),
                (ErrorKind::Unavailable, ErrorStatus::Persistent)
            );
            let took = start.elapsed();
            assert!(took >= patience && took < patience + secs(2), "{took:?} of {patience:?}");
            world.store.heal();
            drop(mutex);
            world.clean(&format!("{fault:?}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_continuous_trouble_counts() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    for _ in 0..5 {
        world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
        time::sleep(ms(1_400)).await;
        world.store.heal();
        time::sleep(ms(1_500)).await; // longer than the longest pause
    }
    guard.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_bounded_wait_reports_the_last_error_at_its_bound() {
    let world = World::new(Kind::Ttl);
    world.store.always(Op::Attempt, Fault::Fail(ErrorKind::StoreLoading));
    let start = Instant::now();
    let error = world.mutex("a").lock_timeout(secs(9)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreLoading);
    assert!(start.elapsed().abs_diff(secs(9)) < ms(5), "{:?}", start.elapsed());
    world.store.heal();
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_comes_at_once() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.always(Op::Attempt, Fault::Fail(ErrorKind::PermissionDenied));
        let start = Instant::now();
        let error = world.mutex("a").lock().await.unwrap_err();
        assert_eq!(
            (error.kind(), error.status()),
            (ErrorKind::PermissionDenied, ErrorStatus::Permanent)
        );
        assert_eq!(error.operation(), Some("lock"));
        assert_eq!((error.backend(), error.name().unwrap().as_str()), (Some("fake"), "a"));
        assert!(start.elapsed() < ms(10));
        assert_eq!(world.store.count(Op::Attempt), 1);
        world.clean(&format!("{kind:?}")).await;
    }
}

/// Found by the simulation of lockkit-torture: the last error was returned unchanged, whatever an
/// earlier attempt had done.
#[tokio::test(start_paused = true)]
async fn c5_an_error_after_an_attempt_that_may_have_been_applied_is_unknown() {
    let denied = Fault::Fail(ErrorKind::PermissionDenied);
    let refused = Fault::Fail(ErrorKind::Unavailable);
    for (faults, unknown) in [
        (vec![refused, denied], false),
        (vec![Fault::LoseReply, denied], true),
        // The attempt is in flight at the bound.
        (vec![refused, Fault::HangAfter], true),
    ] {
        for kind in KINDS {
            let world = World::new(kind);
            world.store.once(Op::Attempt, faults.clone());
            let error = world.mutex("a").lock_timeout(ms(500)).await.unwrap_err();
            assert_eq!(error.is_outcome_unknown(), unknown, "{kind:?} {faults:?}: {error}");
            world.clean(&format!("{kind:?}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c5_a_grant_that_comes_too_late_for_a_hold_is_no_failure_for_certain() {
    let world = World::new(Kind::Ttl);
    world.store.set_lease(Lease::For(ms(1)));
    let error = world.mutex("a").lock_timeout(ms(500)).await.unwrap_err();
    assert!(error.to_string().contains("took longer than the lease"), "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    world.clean("").await;
}

/// The holder's release may grant the lock to the first in the queue, without a request of that
/// waiter.
#[tokio::test(start_paused = true)]
async fn c5_an_error_with_a_place_in_the_queue_is_unknown() {
    for kind in KINDS {
        let world = World::new(kind);
        let holder = world.mutex("a").lock().await.unwrap();
        let mutex = world.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock_timeout(ms(1_500)).await.unwrap_err() });
        time::sleep(ms(100)).await;
        let queued = world.store.queued() > 0;
        world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
        world.store.wake_all();
        let error = waiting.await.unwrap();
        assert!(error.is_outcome_unknown() || !queued, "{kind:?}: {error}");
        world.store.heal();
        drop(holder);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c5_a_shutdown_during_an_attempt_has_an_unknown_outcome() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.once(Op::Attempt, [Fault::HangAfter]);
        let mutex = world.mutex("a");
        let locking = tokio::spawn(async move { mutex.lock().await.unwrap_err() });
        time::sleep(ms(100)).await;
        assert_eq!(world.store.holders(), 1, "{kind:?}");
        world.locker.shutdown().await.unwrap();
        let error = locking.await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.is_outcome_unknown(), "{kind:?}: {error}");
    }
}

/// A store that wakes its waiters is polled slowly, but a store in trouble is asked again soon.
#[tokio::test(start_paused = true)]
async fn a_short_trouble_costs_a_short_wait() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.once(Op::Attempt, [Fault::LoseReply, Fault::Fail(ErrorKind::Unavailable)]);
        let start = Instant::now();
        let guard = world.mutex("a").lock().await.unwrap();
        assert!(start.elapsed() < ms(200), "{kind:?} {:?}", start.elapsed());
        drop(guard);
        world.clean(&format!("{kind:?}")).await;
    }
}

/// The watch of a broken connection ends at once, and each attempt fails at once. Only the driver's
/// own pause slows the loop down.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_at_once_makes_no_busy_loop() {
    let world = World::new(Kind::Queue);
    world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
    let waking = tokio::spawn({
        let store = std::sync::Arc::clone(&world.store);
        async move {
            loop {
                store.signal.notify_waiters();
                time::sleep(ms(1)).await;
            }
        }
    });
    world.mutex("a").lock_timeout(secs(3)).await.unwrap_err();
    waking.abort();
    waking.await.unwrap_err();
    let attempts = world.store.count(Op::Attempt);
    assert!(attempts < 30, "{attempts} attempts in 3 s");
    world.store.heal();
    world.clean("").await;
}
