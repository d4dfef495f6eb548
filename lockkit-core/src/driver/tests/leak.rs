//! Tests of holds without a guard.

use tokio::time::{self, Instant};

use super::{TTL, World, manual, ms, options, runtimes, secs};
use crate::{
    error::ErrorKind,
    fake::{KINDS, Kind},
    spi::LossReason,
};

#[tokio::test(start_paused = true)]
async fn c10_a_leaked_hold_is_renewed_without_guard_and_locker_and_freed_by_max_hold() {
    for kind in KINDS {
        let world = World::new(kind);
        let mutex = world.mutex_with("a", options().with_max_hold(secs(60)));
        let lost = mutex.lock().await.unwrap().leak();
        let World { store, locker } = world;
        drop((mutex, locker));
        time::sleep(secs(59)).await;
        assert!(!lost.is_lost(), "{kind:?}");
        assert_eq!(store.holders(), 1, "{kind:?}");
        assert_eq!(lost.clone().await, LossReason::MaxHold, "{kind:?}");
        time::sleep(ms(5)).await;
        assert_eq!((store.holders(), store.queued(), store.live_claims()), (0, 0, 0), "{kind:?}");
        // The signal alone keeps no task at work.
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0, "{kind:?}");
        drop(lost);
        assert_eq!(std::sync::Arc::strong_count(&store), 1, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c9_a_manual_lock_ends_with_its_lease() {
    let world = World::new(Kind::Ttl);
    let start = Instant::now();
    let lost = world.mutex_with("a", manual()).lock().await.unwrap().leak();
    assert!(world.mutex("a").try_lock().await.unwrap().is_none());
    assert_eq!(lost.await, LossReason::Expired);
    assert!((2_960..2_975).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    drop(world.mutex("a").lock().await.unwrap());
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_shutdown_ends_leaked_locks_at_once() {
    for kind in KINDS {
        for options in [options(), manual(), options().with_max_hold(secs(60))] {
            let world = World::new(kind);
            let lost = world.mutex_with("a", options).lock().await.unwrap().leak();
            let start = Instant::now();
            world.locker.shutdown().await.unwrap();
            assert!(start.elapsed() < ms(50), "{kind:?} {:?}", start.elapsed());
            assert_eq!(lost.await, LossReason::Closed, "{kind:?}");
            world.clean_now(&format!("{kind:?}")).await;
        }
    }
}

/// The user of the guard leaks it, while the shutdown waits for it.
#[tokio::test(start_paused = true)]
async fn c7_a_lock_leaked_during_a_shutdown_ends_at_once() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let start = Instant::now();
        let leak = async {
            time::sleep(ms(500)).await;
            guard.leak().await
        };
        let (done, lost) = tokio::join!(world.locker.shutdown(), leak);
        done.unwrap();
        assert_eq!(lost, LossReason::Closed);
        assert!(start.elapsed() < ms(550), "{kind:?} {:?}", start.elapsed());
        world.clean_now(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_lost_leaked_hold_reports_the_loss_and_ends() {
    for kind in KINDS {
        let world = World::new(kind);
        let lost = world.mutex("a").lock().await.unwrap().leak();
        time::sleep(TTL * 3).await;
        world.store.evict_all();
        assert_eq!(lost.await, LossReason::Evicted, "{kind:?}");
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_leaking_a_lost_lock_leaves_nothing() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        world.store.evict_all();
        assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(guard.leak().is_lost(), "{kind:?}");
        world.clean(&format!("{kind:?}")).await;
    }
}

#[test]
fn c6_a_leaked_lock_keeps_nothing_beyond_its_runtime() {
    for kind in KINDS {
        let runtime = runtimes::threads();
        let world = runtimes::world(kind);
        let mutex = world.mutex("a");
        let lost = runtime.block_on(mutex.lock()).unwrap().leak();
        let World { store, locker } = world;
        drop((mutex, locker, runtime));
        drop(lost);
        assert_eq!((store.live_claims(), std::sync::Arc::strong_count(&store)), (0, 1), "{kind:?}");
    }
}

#[test]
fn c6_a_lock_leaked_after_its_runtime_ended_keeps_nothing() {
    for kind in KINDS {
        let runtime = runtimes::threads();
        let world = runtimes::world(kind);
        let mutex = world.mutex("a");
        let guard = runtime.block_on(mutex.lock()).unwrap();
        drop(runtime);
        let lost = guard.leak();
        let World { store, locker } = world;
        drop((mutex, locker));
        drop(lost);
        assert_eq!((store.live_claims(), std::sync::Arc::strong_count(&store)), (0, 1), "{kind:?}");
    }
}
