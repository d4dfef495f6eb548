//! Many connections after one name, and after names that have no row yet.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
};

use lockkit_core::spi::Wait;
use lockkit_fixture::SqlFlavor;
use tokio::{
    sync::Barrier,
    task::{JoinSet, yield_now},
};

use crate::support::*;

on_both!(
    c1_c4_one_at_a_time_among_64_connections,
    c1_c13_64_connections_race_for_fresh_names,
    c1_c13_writers_and_readers_race_for_fresh_names,
);

const CROWD: usize = 64;

/// One connection each.
async fn crowd(bed: &Bed) -> Vec<Arc<lockkit_mysql::MySql>> {
    bed.connect("").await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Arc::new(bed.connect("pool_size=1").await));
    }
    crowd
}

/// Catches a statement that lets two in, a token that falls, and a deadlock that reaches the caller.
async fn c1_c4_one_at_a_time_among_64_connections(flavor: SqlFlavor) {
    const ROUNDS: usize = 5;
    let bed = Bed::shared(flavor);
    let (inside, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for backend in crowd(&bed).await {
        let (inside, last) = (Arc::clone(&inside), Arc::clone(&last));
        // The store's own queue is what is tested.
        let locker = lockkit_core::Locker::from_dyn(backend).with_process_gate(false);
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = locker.mutex("one").unwrap().lock().await.unwrap();
                assert!(!inside.swap(true, SeqCst), "two are inside");
                let token = guard.fencing_token().get();
                assert!(last.swap(token, SeqCst) < token, "a token fell");
                yield_now().await;
                inside.store(false, SeqCst);
                guard.release().await.unwrap();
            }
        });
    }
    within(SOON * 3, "the crowd", tasks.join_all()).await;
}

/// Catches a first write that deadlocks (insert after a failed read, INSERT IGNORE and FOR UPDATE, gap locks).
async fn c1_c13_64_connections_race_for_fresh_names(flavor: SqlFlavor) {
    const ROUNDS: usize = 20;
    let bed = Bed::shared(flavor);
    let start = Arc::new(Barrier::new(CROWD));
    let wins: Arc<Vec<AtomicU32>> = Arc::new((0..ROUNDS).map(|_| AtomicU32::new(0)).collect());
    let mut tasks = JoinSet::new();
    for (index, backend) in crowd(&bed).await.into_iter().enumerate() {
        let (start, wins) = (Arc::clone(&start), Arc::clone(&wins));
        tasks.spawn(async move {
            for (round, wins) in wins.iter().enumerate() {
                start.wait().await;
                let mut common = claim(&backend, &format!("{round}"));
                let attempt = common.attempt(Wait::No).await;
                if matches!(attempt.unwrap(), lockkit_core::spi::Attempt::Granted(_)) {
                    wins.fetch_add(1, SeqCst);
                }
                // And each one its own, next to the others'.
                let mut own = claim(&backend, &format!("{round} {index}"));
                granted(own.attempt(Wait::No).await);
                own.release().await.unwrap();
            }
        });
    }
    within(SOON * 3, "the crowd", tasks.join_all()).await;
    for wins in &*wins {
        assert_eq!(wins.load(SeqCst), 1);
    }
}

/// The same for the transaction of several statements, which has more ways to deadlock.
async fn c1_c13_writers_and_readers_race_for_fresh_names(flavor: SqlFlavor) {
    const ROUNDS: usize = 8;
    let bed = Bed::shared(flavor);
    let (readers, writers) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let start = Arc::new(Barrier::new(CROWD));
    let mut tasks = JoinSet::new();
    for (index, backend) in crowd(&bed).await.into_iter().enumerate() {
        let (readers, writers, start) = (Arc::clone(&readers), Arc::clone(&writers), Arc::clone(&start));
        // The store's own queue is what is tested.
        let locker = lockkit_core::Locker::from_dyn(backend).with_process_gate(false);
        tasks.spawn(async move {
            for round in 0..ROUNDS {
                start.wait().await;
                let lock = locker.rw_lock(&round.to_string()).unwrap();
                if (index + round) % 8 == 0 {
                    let guard = lock.write().await.unwrap();
                    assert_eq!((writers.fetch_add(1, SeqCst), readers.load(SeqCst)), (0, 0));
                    yield_now().await;
                    writers.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                } else {
                    let guard = lock.read().await.unwrap();
                    readers.fetch_add(1, SeqCst);
                    assert_eq!(writers.load(SeqCst), 0);
                    yield_now().await;
                    readers.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                }
            }
        });
    }
    within(SOON * 3, "the crowd", tasks.join_all()).await;
}
