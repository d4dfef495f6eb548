//! Calls that are dropped midway leave nothing in the store.

use std::{num::NonZeroU32, time::Duration};

use lockkit_core::{
    Kind, LockName, Mutex, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, Mode, Wait},
};
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

/// Of this many calls, the last one waits until it is granted. It proves that the cancelled calls
/// before it do not block it. It also gives a busy server time to undo them: otherwise they pile up
/// faster than the server removes them.
const CALLS_BEFORE_A_TURN: u64 = 20;

fn waits_for_its_turn(round: u64) -> bool {
    round % CALLS_BEFORE_A_TURN == CALLS_BEFORE_A_TURN - 1
}

/// Fails unless the lock is granted soon.
async fn take_a_turn(mutex: &Mutex) {
    let guard = timeout(SOON, mutex.lock()).await.unwrap().unwrap();
    guard.release().await.unwrap();
}

/// From 0 to 3 ms.
fn patience(round: u64, task: u64) -> Duration {
    Duration::from_micros((round * 37 + task * 11) % 3000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_claims_dropped_at_any_time_leave_no_node_and_no_watch() {
    let bed = Bed::shared();
    let zk = std::sync::Arc::new(bed.connect("").await);
    let one = NonZeroU32::MIN;
    let three = NonZeroU32::new(3).unwrap();
    let modes = [
        (Kind::Mutex, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::Semaphore, Mode::Permits { count: one, limit: three }),
        (Kind::Semaphore, Mode::Permits { count: three, limit: three }),
    ];
    let mut tasks = JoinSet::new();
    for (task, (kind, mode)) in (0_u64..).zip(modes.into_iter().cycle().take(10)) {
        let zk = std::sync::Arc::clone(&zk);
        tasks.spawn(async move {
            for round in 0..120_u64 {
                let name = LockName::new(kind, "a").unwrap();
                let spec = ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT);
                let mut claim = zk.claim(spec).unwrap();
                if waits_for_its_turn(round) {
                    lock(&mut claim).await;
                    continue;
                }
                let trying = async {
                    while let Attempt::Busy { .. } = claim.attempt(Wait::Queue).await.unwrap() {
                        claim.changed().await;
                    }
                };
                let _ = timeout(patience(round, task), trying).await;
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    bed.assert_clean().await;
}

/// Catches a claim that forgets the possible effect of a dropped call, and leaves that effect in
/// the store when it is used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_claims_that_are_used_on_after_dropped_calls_leave_nothing() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let one = NonZeroU32::MIN;
    let two = NonZeroU32::new(2).unwrap();
    for (kind, modes) in [
        (Kind::Mutex, [Mode::Exclusive; 3]),
        (Kind::RwLock, [Mode::Exclusive, Mode::Shared, Mode::Shared]),
        (
            Kind::Semaphore,
            [1, 2, 1].map(|n| Mode::Permits { count: if n == 1 { one } else { two }, limit: two }),
        ),
    ] {
        let mut kept = std::collections::VecDeque::new();
        for round in 0..150_u64 {
            let name = LockName::new(kind, "a").unwrap();
            let mode = modes[usize::try_from(round % 3).unwrap()];
            let mut claim =
                zk.claim(ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT)).unwrap();
            for step in 0..4 {
                let wait = if round % 5 == 0 { Wait::No } else { Wait::Queue };
                let _ = timeout(patience(round, step * 12), claim.attempt(wait)).await;
                let _ = timeout(patience(round, step * 12) / 2, claim.changed()).await;
            }
            let _ = timeout(patience(round, 0) / 3, claim.release()).await;
            // Some claims live on, in any state.
            if round % 4 == 0 {
                kept.push_back(claim);
            }
            if kept.len() > 5 {
                kept.pop_front();
            }
        }
        drop(kept);
        bed.assert_clean().await;
    }
}

async fn storm_of_lock_calls(query: &str) {
    let bed = Bed::shared();
    let locker = bed.locker(query).await;
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let mutex = locker.mutex(if task < 3 { "contended" } else { "own" }).unwrap();
        tasks.spawn(async move {
            for round in 0..150_u64 {
                if waits_for_its_turn(round) {
                    take_a_turn(&mutex).await;
                } else if let Ok(guard) = timeout(patience(round, task), mutex.lock()).await {
                    drop(guard.unwrap());
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    // No node blocks the next claim.
    take_a_turn(&locker.mutex("contended").unwrap()).await;
    timeout(SOON, locker.shutdown()).await.unwrap().unwrap();
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_lock_calls_dropped_at_any_time_leave_nothing() {
    storm_of_lock_calls("").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_lock_calls_without_a_queue_dropped_at_any_time_leave_nothing() {
    storm_of_lock_calls("fair=false").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_tries_dropped_at_any_time_leave_nothing() {
    let bed = Bed::shared();
    let locker = bed.locker("").await;
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let mutex = locker.mutex("a").unwrap();
        tasks.spawn(async move {
            for round in 0..150_u64 {
                if waits_for_its_turn(round) {
                    take_a_turn(&mutex).await;
                } else if let Ok(Ok(Some(guard))) =
                    timeout(patience(round, task), mutex.try_lock()).await
                {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    bed.assert_clean().await;
    timeout(SOON, locker.shutdown()).await.unwrap().unwrap();
}
