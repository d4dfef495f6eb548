//! Tests the backend under the core's driver: calls that are dropped midway leave nothing behind.

use std::time::Duration;

use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

async fn assert_clean(store: &Admin) {
    // The server learns of a closed connection in its own time.
    timeout(SOON, async { while !store.channels().await.is_empty() {} }).await.unwrap();
    let held: Vec<_> = store.keys().await.into_iter().filter(|key| *key != counter_key()).collect();
    assert!(held.is_empty(), "{held:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_lock_calls_dropped_at_any_time_leave_nothing() {
    let Store { redis, admin, server } = Store::start().await;
    let locker = locker(redis);
    let mut tasks = JoinSet::new();
    for task in 0..4_u64 {
        let mutex = locker.mutex(if task < 3 { "contended" } else { "own" }).unwrap();
        tasks.spawn(async move {
            for round in 0..500_u64 {
                let patience = Duration::from_micros((round * 37 + task * 11) % 3000);
                if let Ok(guard) = timeout(patience, mutex.lock()).await {
                    drop(guard.unwrap());
                }
            }
        });
    }
    tasks.join_all().await;
    timeout(SOON, locker.shutdown()).await.unwrap().unwrap();
    assert_clean(&admin).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_tasks_that_compete_are_served_one_by_one_with_rising_tokens() {
    let Store { redis, admin, server } = Store::start().await;
    let locker = locker(redis);
    let last = std::sync::Arc::new(tokio::sync::Mutex::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let mutex = locker.mutex("a").unwrap();
        let last = last.clone();
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = mutex.lock().await.unwrap();
                let mut last = last.try_lock().expect("two holders");
                assert!(guard.fencing_token().get() > *last);
                *last = guard.fencing_token().get();
                tokio::task::yield_now().await;
                drop(last);
                guard.release().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let requests = admin.requests().await;
    assert!(requests <= 4 * 640, "{requests} requests for 640 grants");
    timeout(SOON, locker.shutdown()).await.unwrap().unwrap();
    assert_clean(&admin).await;
    drop(server);
}
