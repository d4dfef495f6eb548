//! Tests of the warning before a hold ends.

use std::{future::IntoFuture as _, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::{self, Instant};

use super::{
    TTL, World, manual, ms, options,
    outside::block_on,
    runtimes::{self, threads},
    secs,
};
use crate::{
    fake::{Fault, KINDS, Kind, Op},
    spi::Lease,
};

#[tokio::test(start_paused = true)]
async fn c3_the_end_of_an_unrenewed_hold_is_announced() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let start = Instant::now();
    let warning = guard.expiring(secs(1));
    let left = warning.clone().await;
    assert!((ms(995)..=secs(1)).contains(&left), "{left:?}");
    assert!((1_960..1_975).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert!(guard.is_held());
    let again = warning.wait().await;
    assert!(again <= left && Instant::now() < start + secs(2), "the same signal tells it at once");
    guard.lost().await;
    assert_eq!(warning.await, Duration::ZERO);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_renewals_push_the_warning_on() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let warning = guard.expiring(secs(1));
    time::timeout(secs(60), warning.wait()).await.expect_err("it is renewed each second");
    world.store.always(Op::KeepAlive, Fault::Hang);
    let left = warning.await;
    assert!(guard.is_held() && left <= secs(1) && left > ms(990), "{left:?}");
    world.store.heal();
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_warning_of_the_whole_lease_comes_at_once() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    for before in [TTL, Duration::MAX] {
        assert!(guard.expiring(before).into_future().now_or_never().is_some(), "{before:?}");
    }
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_the_end_of_a_max_hold_is_announced_on_every_store() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex_with("a", options().with_max_hold(secs(10))).lock().await.unwrap();
        let start = Instant::now();
        let left = guard.expiring(ms(500)).await;
        assert!((ms(495)..=ms(500)).contains(&left), "{kind:?} {left:?}");
        assert!(
            (9_490..9_510).contains(&start.elapsed().as_millis()),
            "{kind:?} {:?}",
            start.elapsed()
        );
        drop(guard);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_loss_completes_the_warning_and_a_release_never() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let warning = guard.expiring(ms(10));
        world.store.evict_all();
        assert_eq!(
            time::timeout(TTL, warning.into_future()).await.unwrap(),
            Duration::ZERO,
            "{kind:?}"
        );
        drop(guard);
        let guard = world.mutex("a").lock().await.unwrap();
        let waits = guard.expiring(secs(1));
        let begins_late = guard.expiring(secs(10));
        let waiting = tokio::spawn(waits.into_future());
        time::sleep(ms(5)).await;
        guard.release().await.unwrap();
        time::timeout(secs(60), begins_late.wait()).await.expect_err("it was given back");
        assert!(!waiting.is_finished(), "{kind:?}");
        waiting.abort();
        drop((waiting.await, begins_late));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_shutdown_announces_the_end_of_each_hold() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let start = Instant::now();
        let warning = guard.expiring(ms(500));
        let (left, done) = tokio::join!(warning.wait(), world.locker.shutdown());
        done.unwrap();
        assert!(left <= ms(500) && left > ms(490), "{kind:?} {left:?}");
        assert!(start.elapsed() <= TTL + ms(20), "{kind:?} {:?}", start.elapsed());
        drop((guard, warning));
        world.clean(&format!("{kind:?}")).await;
    }
}

/// The background task wakes a thread that has no timers of its own, and keeps nothing for it.
#[test]
fn c3_a_warning_comes_outside_a_runtime_too() {
    let runtime = threads();
    let world = runtimes::world(Kind::Ttl);
    let mutex = world.mutex_with("a", manual().with_ttl(secs(10)));
    let start = std::time::Instant::now();
    let guard = runtime.block_on(mutex.lock()).unwrap();
    let left = block_on(guard.expiring(secs(9)).wait());
    assert!(left <= secs(9) && !left.is_zero(), "{left:?}");
    assert!(start.elapsed() >= ms(850), "{:?}", start.elapsed());
    drop((guard, mutex));
    let mutex = world.mutex_with("b", manual().with_ttl(secs(1)));
    let guard = runtime.block_on(mutex.lock()).unwrap();
    assert_eq!(block_on(guard.expiring(ms(1)).wait()).max(ms(1)), ms(1));
    drop((guard, mutex));
    runtime.block_on(world.clean(""));
}

/// A lease shrinks when a member of a quorum has lost its part, or when a store's clock was
/// stepped.
#[tokio::test(start_paused = true)]
async fn c3_a_lease_that_has_shrunk_is_announced_in_time() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    guard.extend(secs(60)).await.unwrap();
    let warning = tokio::spawn(guard.expiring(secs(5)).into_future());
    time::sleep(ms(10)).await;
    world.store.set_lease(Lease::For(secs(6)));
    guard.renew().await.unwrap();
    assert!(guard.remaining() < secs(6));
    let left = warning.await.unwrap();
    assert!(left > ms(4_900), "warned with {left:?} left");
    drop(guard);
    world.clean("").await;
}
