//! Tests of wake-ups: a waiter asks again, and a holder renews at once.

use tokio::time;

use super::{TTL, World, manual, ms, secs};
use crate::{
    error::ErrorKind,
    fake::{Fault, Kind, Op},
    spi::LossReason,
};

#[tokio::test(start_paused = true)]
async fn c8_waiters_are_granted_by_wake_up_and_one_while_waiting_costs_no_renewal() {
    let world = World::new(Kind::Push);
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let mutex = world.mutex("a");
            tokio::spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() })
        })
        .collect();
    let start = time::Instant::now();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(start.elapsed() < ms(200), "{:?}", start.elapsed());
    time::sleep(ms(50)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 0);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_before_the_grant_causes_no_renewal_after_it() {
    let world = World::new(Kind::Push);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(50)).await;
    world.store.wake_all();
    time::sleep(ms(50)).await;
    world.store.wake_all();
    time::sleep(ms(50)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 2, "the holder's own: it was woken twice");
    world.store.forget_log();
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap();
    time::sleep(ms(850)).await;
    assert_eq!(
        world.store.count(Op::KeepAlive),
        0,
        "a renewal is due after 900 ms at the earliest"
    );
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_while_held_renews_once() {
    let world = World::new(Kind::Push);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.wake_all();
    world.store.wake_all();
    time::sleep(ms(500)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn wake_ups_during_a_renewal_leave_one_timer_and_renew_once_more() {
    let world = World::new(Kind::Push);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.set_latency(ms(400));
    world.store.wake_all();
    for _ in 0..5 {
        time::sleep(ms(50)).await;
        world.store.wake_all();
        assert!(world.sizes().0 <= 1, "one timer at most");
    }
    time::sleep(ms(600)).await;
    assert_eq!(
        world.store.count(Op::KeepAlive),
        2,
        "the one in flight, and one that saw what came after"
    );
    assert_eq!(world.sizes(), (1, 0));
    world.store.set_latency(ms(2));
    time::sleep(secs(9)).await;
    let renewals = world.store.count(Op::KeepAlive);
    assert!((10..=13).contains(&renewals), "one timer's worth, not {renewals}");
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_an_eviction_is_noticed_by_wake_up_at_once() {
    let world = World::new(Kind::Push);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.evict_all();
    let start = time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::Evicted);
    assert!(start.elapsed() < ms(10), "{:?}", start.elapsed());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_an_eviction_during_a_renewal_is_noticed_by_the_next() {
    let world = World::new(Kind::Push);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::SlowReply(ms(300))]);
    world.store.wake_all();
    time::sleep(ms(100)).await; // applied, not answered
    world.store.evict_all();
    let start = time::Instant::now();
    assert_eq!(guard.lost().await, LossReason::Evicted);
    assert!(start.elapsed() < ms(250), "{:?}", start.elapsed());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_manual_guard_hears_wake_ups_too() {
    let world = World::new(Kind::Push);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    world.store.evict_all();
    let start = time::Instant::now();
    assert_eq!(time::timeout(TTL, guard.lost()).await, Ok(LossReason::Evicted));
    assert!(start.elapsed() < ms(10), "{:?}", start.elapsed());
    drop(guard);
    world.clean("").await;
}

/// The wake-up comes after the store has granted, and before the caller has its answer.
#[tokio::test(start_paused = true)]
async fn c3_an_eviction_while_the_grant_is_on_its_way_is_noticed() {
    let world = World::new(Kind::Push);
    world.store.set_latency(ms(20));
    let mutex = world.mutex_with("a", manual());
    let locking = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(15)).await;
    world.store.evict_all();
    let guard = locking.await.unwrap();
    let lost = time::timeout(ms(100), guard.lost().wait()).await;
    assert_eq!(lost.expect("the wake-up is followed"), LossReason::Evicted);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_woken_manual_guard_asks_the_store_only_once() {
    let world = World::new(Kind::Push);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    world.store.wake_all();
    time::sleep(secs(60)).await;
    assert!(guard.is_held(), "a session lease");
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_woken_manual_guard_asks_the_store_until_it_gets_an_answer() {
    let world = World::new(Kind::Push);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::Fail(ErrorKind::Unavailable); 2]);
    world.store.evict_all();
    let reason = time::timeout(secs(1), guard.lost()).await;
    assert_eq!(reason, Ok(LossReason::Evicted));
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_wake_up_during_a_manual_renewal_is_not_swallowed() {
    let world = World::new(Kind::Push);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::SlowReply(ms(300))]);
    let (renewed, ()) = tokio::join!(guard.renew(), async {
        time::sleep(ms(100)).await; // applied, not answered
        world.store.evict_all();
    });
    renewed.unwrap();
    let reason = time::timeout(ms(50), guard.lost()).await;
    assert_eq!(reason, Ok(LossReason::Evicted));
    drop(guard);
    world.clean("").await;
}

/// The claim is in a future that is not polled, for longer than the background task waits.
#[tokio::test(start_paused = true)]
async fn c3_a_wake_up_that_could_not_be_followed_is_not_forgotten() {
    let world = World::new(Kind::Push);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::Hang]);
    let mut renewing = Box::pin(guard.renew());
    time::timeout(ms(1), renewing.as_mut()).await.unwrap_err();
    world.store.evict_all();
    time::sleep(ms(2_500)).await;
    drop(renewing);
    assert_eq!(time::timeout(secs(2), guard.lost()).await, Ok(LossReason::Evicted));
    drop(guard);
    world.clean("").await;
}
