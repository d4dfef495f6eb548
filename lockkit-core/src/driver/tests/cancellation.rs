//! C6: tests that a future which is dropped at any point leaves nothing behind.

use std::time::Duration;

use crate::fake::{Fault, KINDS, Kind, Op};
use tokio::time;

use super::{
    World, ms,
    runtimes::{self, single},
    secs,
};

fn micros(below: u64) -> Duration {
    Duration::from_micros(rand::random_range(0..below))
}

#[tokio::test(start_paused = true)]
async fn c6_a_wait_cancelled_at_any_point_leaves_nothing() {
    for kind in KINDS {
        for cut in 0..40 {
            let world = World::new(kind);
            let guard = world.mutex("a").lock().await.unwrap();
            let waiter = world.mutex("a");
            let waiting =
                tokio::spawn(async move { drop(time::timeout(ms(cut), waiter.lock()).await) });
            time::sleep(ms(cut / 2)).await;
            drop(guard);
            waiting.await.unwrap();
            time::sleep(ms(1_500)).await;
            assert_eq!(world.store.holder("a"), None, "{kind:?}, cut at {cut}");
            let next = world.mutex("a").try_lock().await.unwrap();
            assert!(next.is_some(), "{kind:?}, cut at {cut}");
            drop(next);
            world.clean(&format!("{kind:?}, cut at {cut}")).await;
        }
    }
}

#[test]
fn c6_a_lock_future_dropped_outside_a_runtime_is_finished_inside() {
    for kind in KINDS {
        let runtime = single();
        let world = runtimes::world(kind);
        let mutex = world.mutex("a");
        let mut locking = Box::pin(mutex.lock());
        runtime.block_on(async {
            time::timeout(ms(1), locking.as_mut()).await.unwrap_err();
        });
        drop(locking);
        drop(mutex);
        runtime.block_on(world.clean(&format!("{kind:?}")));
    }
}

#[tokio::test(start_paused = true)]
async fn c6_thousands_of_futures_dropped_anywhere_leave_nothing() {
    for kind in KINDS {
        let world = World::new(kind);
        let mut tasks = Vec::new();
        for i in 0..5_000 {
            let mutex = world.mutex(&format!("k{}", i % 50));
            tasks.push(tokio::spawn(async move {
                time::sleep(micros(200_000)).await;
                let Ok(Ok(guard)) = time::timeout(micros(40_000), mutex.lock()).await else {
                    return;
                };
                time::sleep(micros(3_000)).await;
                match i % 4 {
                    0 => drop(guard),
                    1 => guard.release().await.unwrap(),
                    2 => drop(time::timeout(micros(4_000), guard.release()).await),
                    _ => {
                        let _ = time::timeout(micros(4_000), guard.renew()).await;
                        drop(time::timeout(micros(4_000), guard.release()).await);
                    }
                }
            }));
            if i == 2_500 {
                world.store.once(Op::Attempt, [Fault::LoseReply; 300]);
                world.store.once(Op::Release, [Fault::LoseReply; 100]);
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        time::sleep(secs(5)).await;
        assert_eq!(world.store.renewals_after_release(), 0, "{kind:?}");
        world.store.heal();
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c6_an_abandoned_attempt_is_finished_and_undone() {
    let world = World::new(Kind::Ttl);
    world.store.set_latency(ms(100));
    let mutex = world.mutex("a");
    time::timeout(ms(20), mutex.lock()).await.unwrap_err();
    drop(mutex);
    time::sleep(ms(40)).await;
    assert!(world.store.holder("a").is_some(), "applied after its caller had gone");
    time::sleep(ms(150)).await;
    assert_eq!(world.store.holder("a"), None);
    assert_eq!((world.store.count(Op::Attempt), world.store.count(Op::Release)), (1, 1));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_dropped_midway_still_frees() {
    for kind in KINDS {
        for cut in 0..4 {
            let world = World::new(kind);
            let guard = world.mutex("a").lock().await.unwrap();
            let _ = time::timeout(Duration::from_micros(cut * 700), guard.release()).await;
            time::sleep(ms(50)).await;
            assert_eq!(world.store.count(Op::Release), 1, "the one that was dropped was finished");
            world.clean(&format!("{kind:?}, cut at {cut}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_that_was_never_polled_frees() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    drop(guard.release());
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_a_renewal_dropped_midway_is_finished() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.set_latency(ms(200));
    time::sleep(ms(500)).await;
    time::timeout(ms(50), guard.renew()).await.unwrap_err();
    time::sleep(ms(200)).await;
    assert!(guard.remaining() > ms(2_500), "{:?}", guard.remaining());
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    world.store.set_latency(ms(2));
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_a_cancelled_scope_releases() {
    for kind in KINDS {
        let world = World::new(kind);
        let mutex = world.mutex("a");
        time::timeout(ms(50), mutex.scope(async |_| std::future::pending::<()>().await))
            .await
            .unwrap_err();
        drop(mutex);
        world.clean(&format!("{kind:?}")).await;
    }
}
