//! What is dropped midway leaves nothing behind.

use std::{num::NonZeroU32, time::Duration};

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Backend as _, ClaimSpec, Mode, Wait},
};
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

/// From 0 to 3 ms.
fn patience(round: u64, task: u64) -> Duration {
    Duration::from_micros((round * 37 + task * 11) % 3000)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_claims_dropped_at_any_time_leave_no_node_and_no_watch() {
    let bed = Bed::shared();
    let zk = std::sync::Arc::new(bed.connect("").await);
    let (one, three) = (NonZeroU32::MIN, NonZeroU32::new(3).unwrap());
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
            let mut grants = 0;
            for round in 0..300_u64 {
                let name = LockName::new(kind, "a").unwrap();
                let mut claim =
                    zk.claim(ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT)).unwrap();
                let trying = async {
                    while busy_still(&mut *claim).await {
                        claim.changed().await;
                    }
                };
                grants += u32::from(timeout(patience(round, task), trying).await.is_ok());
            }
            grants
        });
    }
    let grants: u32 = tasks.join_all().await.into_iter().sum();
    assert!(grants > 0, "there must be something to give up");
    bed.assert_clean().await;
}

async fn busy_still(claim: &mut dyn lockkit_core::spi::Claim) -> bool {
    matches!(claim.attempt(Wait::Queue).await.unwrap(), lockkit_core::spi::Attempt::Busy { .. })
}

async fn storm_of_lock_calls(query: &str) {
    let bed = Bed::shared();
    let locker = bed.locker(query).await;
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let mutex = locker.mutex(if task < 3 { "contended" } else { "own" }).unwrap();
        tasks.spawn(async move {
            for round in 0..400_u64 {
                if let Ok(guard) = timeout(patience(round, task), mutex.lock()).await {
                    drop(guard.unwrap());
                }
            }
        });
    }
    tasks.join_all().await;
    // Nothing stands in the way of the next.
    timeout(SOON, locker.mutex("contended").unwrap().lock()).await.unwrap().unwrap().release().await.unwrap();
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
            for round in 0..400_u64 {
                if let Ok(Ok(Some(guard))) = timeout(patience(round, task), mutex.try_lock()).await {
                    guard.release().await.unwrap();
                }
            }
        });
    }
    tasks.join_all().await;
    bed.assert_clean().await;
    timeout(SOON, locker.shutdown()).await.unwrap().unwrap();
}
