//! Tests of the process gate: the order of tasks, few requests, and which task may go first.

use std::sync::Arc;

use tokio::{
    task::JoinSet,
    time::{self, Instant},
};

use super::{World, manual, ms, secs};
use crate::{
    error::ErrorKind,
    fake::{Fake, KINDS, Kind, Op, lock},
    spi::QueuePolicy,
};

/// Lets `count` tasks take the lock one after the other. Returns their numbers in the order of the
/// grants.
async fn crowd(world: &World, count: usize, hold: time::Duration) -> Vec<usize> {
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..count {
        let mutex = world.mutex("a");
        let order = Arc::clone(&order);
        tasks.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            lock(&order).push((n, guard.fencing_token()));
            time::sleep(hold).await;
            guard.release().await.unwrap();
        });
        // Each task has asked before the next one starts.
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
    let order = lock(&order);
    assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "C4: {order:?}");
    order.iter().map(|(n, _)| *n).collect()
}

#[tokio::test(start_paused = true)]
async fn c12_tasks_of_a_process_are_served_in_order() {
    for kind in KINDS {
        let world = World::gated(kind);
        let order = crowd(&world, 40, ms(1)).await;
        assert!(order.iter().is_sorted(), "{kind:?}: {order:?}");
        world.clean(&format!("{kind:?}")).await;
    }
    let world = World::transferring();
    let order = crowd(&world, 40, ms(1)).await;
    assert!(order.iter().is_sorted(), "{order:?}");
    world.clean("transfer").await;
}

#[tokio::test(start_paused = true)]
async fn c13_a_store_whose_attempts_wait_without_a_bound_panics_nothing() {
    let mut world = World::tuned(Kind::Pinned, Fake::with_endless_patience);
    world.locker = world.locker.with_process_gate(true);
    let order = crowd(&world, 10, ms(1)).await;
    assert!(order.iter().is_sorted(), "{order:?}");
    let guard = world.mutex("a").lock().await.unwrap();
    assert_eq!(
        world.mutex("a").lock_timeout(ms(500)).await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let mutex = world.mutex("a");
        tasks.spawn(async move { drop(mutex.lock().await.unwrap()) });
    }
    time::sleep(secs(1)).await;
    drop(guard);
    tasks.join_all().await;
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn only_the_first_of_a_process_talks_to_the_store() {
    for kind in KINDS {
        let world = World::gated(kind);
        crowd(&world, 40, ms(1)).await;
        assert_eq!(world.store.count(Op::Attempt), 40, "{kind:?}: one for each grant");
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_transfer_is_one_request_for_each_grant() {
    let world = World::transferring();
    crowd(&world, 16, ms(1)).await;
    let counts = [Op::Attempt, Op::Transfer, Op::Release].map(|op| world.store.count(op));
    assert_eq!(counts, [1, 15, 1]);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c12_after_sixteen_transfers_waiters_in_the_store_go_first() {
    let world = World::transferring();
    crowd(&world, 40, ms(1)).await;
    let policies = lock(&world.store.policies).clone();
    let mut runs: Vec<_> =
        policies.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
    // The length of the last run depends on the count.
    runs.pop();
    assert!(!runs.is_empty());
    for (policy, length) in runs {
        let expected = if policy == QueuePolicy::TransferFirst { 16 } else { 1 };
        assert_eq!(length, expected, "{policies:?}");
    }
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c12_an_outsider_is_served_between_transfers() {
    let world = World::transferring();
    let outsider = world.locker.clone().with_process_gate(false).mutex("a").unwrap();
    let held = world.mutex("a").lock().await.unwrap();
    let start = Instant::now();
    let waiting = tokio::spawn(async move {
        let guard = outsider.lock().await.unwrap();
        let waited = start.elapsed();
        guard.release().await.unwrap();
        waited
    });
    time::sleep(ms(1)).await;
    held.release().await.unwrap();
    crowd(&world, 400, ms(5)).await;
    // The outsider polls. The process rests for longer than the outsider's shortest pauses.
    let waited = waiting.await.unwrap();
    assert!(waited < secs(2), "{waited:?}");
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_try_behind_a_holder_of_this_process_sends_no_request() {
    let world = World::gated(Kind::Ttl);
    let guard = world.mutex("a").try_lock().await.unwrap().unwrap();
    assert!(world.mutex("a").try_lock().await.unwrap().is_none());
    assert_eq!(world.store.count(Op::Attempt), 1);
    guard.release().await.unwrap();
    let again = world.mutex("a").try_lock().await.unwrap();
    assert!(again.is_some(), "the gate stays closed");
    drop(again);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_holder_that_lost_the_lock_blocks_no_other_client() {
    for kind in [Kind::Ttl, Kind::Push] {
        let world = World::gated(kind);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        let mutex = world.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
        time::sleep(ms(10)).await;
        world.store.evict_all();
        let next = time::timeout(secs(6), waiting).await.expect("the gate stays closed").unwrap();
        assert!(!guard.is_held() || kind == Kind::Ttl);
        drop((guard, next));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c8_behind_a_long_hold_the_first_in_line_waits_in_the_store() {
    let world = World::gated(Kind::Queue);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutexes = [world.mutex("a"), world.mutex("a")];
    let mut waiting = JoinSet::new();
    for mutex in mutexes {
        waiting.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    time::sleep(ms(200)).await;
    assert_eq!(world.store.count(Op::Attempt), 1, "nobody else asks so soon");
    time::sleep(ms(400)).await;
    assert_eq!(world.store.count(Op::Attempt), 2, "the first in line, and only that one");
    guard.release().await.unwrap();
    waiting.join_all().await;
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_bound_is_kept_in_line() {
    for kind in KINDS {
        let world = World::gated(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let mutexes: [_; 8] = std::array::from_fn(|_| world.mutex("a"));
        let start = Instant::now();
        let waits = mutexes.iter().map(|mutex| mutex.lock_timeout(ms(1_500)));
        for outcome in futures_util::future::join_all(waits).await {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Timeout);
        }
        assert!(start.elapsed() <= ms(1_510), "{kind:?}: {:?}", start.elapsed());
        drop((guard, mutexes));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn other_names_have_other_gates() {
    let world = World::gated(Kind::Ttl);
    let a = world.mutex("a");
    let b = world.mutex("b");
    let guard = a.lock().await.unwrap();
    let other =
        time::timeout(ms(10), b.lock()).await.expect("another name is not held up").unwrap();
    drop((guard, other, a, b));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c12_a_try_does_not_barge_past_the_line() {
    let mut world = World::tuned(Kind::Ttl, Fake::with_fair);
    world.locker = world.locker.with_process_gate(true);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await.unwrap() });
    time::sleep(ms(1)).await;
    guard.release().await.unwrap();
    // The lock is free in the store, and it is the waiter's turn.
    assert!(world.mutex("a").try_lock().await.unwrap().is_none(), "C12: it barged");
    drop(waiting.await.unwrap());
    time::sleep(ms(10)).await;
    assert!(world.mutex("a").try_lock().await.unwrap().is_some());
    world.clean("").await;
}
