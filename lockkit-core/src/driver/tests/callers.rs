//! C6: an attempt that waits inside the store learns when its caller drops the call, and not
//! earlier.

use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time;

use super::{World, ms, secs};
use crate::{
    error::ErrorKind,
    fake::{KINDS, Kind, Op, lock},
    spi::Caller,
    token::OwnerId,
};

/// A store in which attempts wait, and another owner that has the lock.
fn taken() -> (World, OwnerId) {
    let world = World::new(Kind::Pinned);
    let other = world.store.take("a");
    (world, other)
}

impl World {
    fn waiting(&self) -> usize {
        self.store.waiting()
    }

    fn last_caller(&self) -> Caller {
        lock(&self.store.callers).last().unwrap().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_cancelled_attempt_leaves_the_store_at_once() {
    // With an idle background task, and with one that has holds to renew.
    for holds in [0, 50] {
        for patience in [50, 500, 1_500] {
            let (world, other) = taken();
            let mut guards = Vec::new();
            for i in 0..holds {
                guards.push(world.mutex(&format!("k{i}")).lock().await.unwrap());
            }
            let mutex = world.mutex("a");
            let waiting = tokio::spawn(async move { mutex.lock().await });
            time::sleep(ms(patience)).await;
            assert_eq!(world.waiting(), 1);
            waiting.abort();
            waiting.await.unwrap_err();
            time::sleep(ms(1)).await;
            assert_eq!(world.waiting(), 0, "after {patience} ms, {holds} holds");
            drop(guards);
            world.store.leave("a", other);
            world.clean("").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c6_an_attempt_cancelled_on_its_way_to_the_store_does_not_wait_there() {
    let (world, other) = taken();
    world.store.set_latency(ms(100));
    // The request is on its way for another 30 ms when its caller drops it.
    time::timeout(ms(20), world.mutex("a").lock()).await.unwrap_err();
    time::sleep(ms(29)).await;
    assert_eq!(world.waiting(), 0, "not there yet");
    time::sleep(ms(5)).await;
    assert_eq!(world.waiting(), 0, "there, and gone");
    world.store.set_latency(ms(2));
    world.store.leave("a", other);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_an_attempt_leaves_the_store_when_the_bound_has_passed() {
    let (world, other) = taken();
    world.store.set_latency(ms(100));
    let start = time::Instant::now();
    // The request arrives after 50 ms and may wait until 145 ms.
    assert_eq!(
        world.mutex("a").lock_timeout(ms(100)).await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    assert!(start.elapsed() <= ms(102), "{:?}", start.elapsed());
    time::sleep(ms(1)).await;
    assert_eq!(world.waiting(), 0);
    world.store.leave("a", other);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_waiting_caller_is_not_cancelled() {
    let (world, other) = taken();
    let mutex = world.mutex("a");
    let start = time::Instant::now();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    time::sleep(ms(2_500)).await;
    assert_eq!(world.last_caller().gone().now_or_never(), None);
    assert_eq!(world.store.count(Op::Attempt), 3, "each waits for its whole patience of 1 s");
    world.store.leave("a", other);
    let guard = waiting.await.unwrap().unwrap();
    assert!(start.elapsed() <= ms(2_510), "{:?}", start.elapsed());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_whoever_else_listens_is_woken() {
    // A backend may listen in a task of its own, while another task polls the attempt.
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Pinned) {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let mutex = world.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        time::sleep(ms(20)).await;
        let caller = world.last_caller();
        let listening = tokio::spawn(async move { caller.gone().await });
        time::sleep(secs(2)).await;
        assert!(!listening.is_finished(), "too early, {kind:?}");
        waiting.abort();
        time::timeout(ms(1), listening).await.expect("woken").unwrap();
        assert_eq!(world.last_caller().gone().now_or_never(), Some(()), "gone for good, {kind:?}");
        drop(guard);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c6_a_shutdown_does_not_wait_for_the_patience_of_the_store() {
    let (world, other) = taken();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    time::sleep(ms(50)).await;
    assert_eq!(world.waiting(), 1);
    let start = time::Instant::now();
    world.locker.shutdown().await.unwrap();
    assert!(start.elapsed() < ms(20), "{:?}", start.elapsed());
    waiting.await.unwrap().unwrap_err();
    world.store.leave("a", other);
    assert_eq!((world.waiting(), world.store.live_claims()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn c6_a_cancelled_waiter_takes_no_turn() {
    for cut in 0..30 {
        let (world, other) = taken();
        let mutex = world.mutex("a");
        time::timeout(Duration::from_micros(cut * 333), mutex.lock()).await.unwrap_err();
        time::sleep(ms(5)).await;
        assert_eq!(world.waiting(), 0, "cut at {cut}");
        world.store.leave("a", other);
        time::sleep(ms(5)).await;
        assert_eq!(world.store.holder("a"), None, "cut at {cut}");
        drop(mutex);
        world.clean(&format!("cut at {cut}")).await;
    }
}
