//! Tests of many connections that compete for one name, and for names that have no row yet.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use lockkit_conformance::{Stay, Witness};
use lockkit_core::{LockGuard, spi::Wait};
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;
use tokio::{
    sync::Barrier,
    task::{JoinSet, yield_now},
};

use crate::support::*;

on_both!(
    c1_c4_one_at_a_time_among_many_connections,
    c1_c13_many_connections_race_for_fresh_names,
    c1_c13_writers_and_readers_race_for_fresh_names,
);

const CROWD: usize = 32;

/// Backends with one connection each.
async fn crowd(bed: &Bed) -> Vec<lockkit_mysql::MySql> {
    bed.connect("").await;
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(bed.connect("pool_size=1").await);
    }
    crowd
}

/// Stays until another task had the chance to come in.
pub(crate) async fn stay(guard: &LockGuard, witness: &Witness) {
    let mut stay = Stay::begin(guard);
    yield_now().await;
    stay.look(guard);
    witness.record(stay);
}

/// Catches a statement that lets two holders in, a token that falls, and a deadlock that reaches
/// the caller.
async fn c1_c4_one_at_a_time_among_many_connections(flavor: SqlFlavor) {
    const ROUNDS: usize = 5;
    let bed = Bed::shared(flavor);
    let witness = Arc::new(Witness::default());
    let mut tasks = JoinSet::new();
    for backend in crowd(&bed).await {
        let witness = Arc::clone(&witness);
        let locker = locker(backend);
        tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = locker.mutex("one").unwrap().lock().await.unwrap();
                stay(&guard, &witness).await;
                guard.release().await.unwrap();
            }
        });
    }
    within(SOON * 5, "the crowd", tasks.join_all()).await;
    assert_eq!(witness.verify(), CROWD * ROUNDS);
}

/// Catches a first write that deadlocks (insert after a failed read, INSERT IGNORE and FOR UPDATE,
/// gap locks).
async fn c1_c13_many_connections_race_for_fresh_names(flavor: SqlFlavor) {
    const ROUNDS: usize = 20;
    let bed = Bed::shared(flavor);
    let start = Arc::new(Barrier::new(CROWD));
    let wins: Arc<Vec<AtomicU32>> = Arc::new((0..ROUNDS).map(|_| AtomicU32::new(0)).collect());
    let mut tasks = JoinSet::new();
    for (index, backend) in crowd(&bed).await.into_iter().enumerate() {
        let start = Arc::clone(&start);
        let wins = Arc::clone(&wins);
        tasks.spawn(async move {
            for (round, wins) in wins.iter().enumerate() {
                start.wait().await;
                let mut common = claim(&backend, &format!("{round}"));
                let attempt = common.attempt(Wait::No).await;
                if matches!(attempt.unwrap(), lockkit_core::spi::Attempt::Granted(_)) {
                    wins.fetch_add(1, SeqCst);
                }
                // Each task also takes a name of its own, next to the others'.
                let mut own = claim(&backend, &format!("{round} {index}"));
                granted(own.attempt(Wait::No).await);
                given_up(own.release()).await;
            }
        });
    }
    within(SOON * 5, "the crowd", tasks.join_all()).await;
    for wins in &*wins {
        assert_eq!(wins.load(SeqCst), 1);
    }
}

/// The same for the transaction of several statements, which has more ways to deadlock.
async fn c1_c13_writers_and_readers_race_for_fresh_names(flavor: SqlFlavor) {
    const ROUNDS: usize = 8;
    let bed = Bed::shared(flavor);
    let witnesses: Arc<[Witness; ROUNDS]> = Arc::default();
    let start = Arc::new(Barrier::new(CROWD));
    let mut tasks = JoinSet::new();
    for (index, backend) in crowd(&bed).await.into_iter().enumerate() {
        let witnesses = Arc::clone(&witnesses);
        let start = Arc::clone(&start);
        let locker = locker(backend);
        tasks.spawn(async move {
            for (round, witness) in witnesses.iter().enumerate() {
                start.wait().await;
                let lock = locker.rw_lock(&round.to_string()).unwrap();
                let writes = (index + round) % 8 == 0;
                let guard = if writes { lock.write().await } else { lock.read().await }.unwrap();
                stay(&guard, witness).await;
                guard.release().await.unwrap();
            }
        });
    }
    within(SOON * 5, "the crowd", tasks.join_all()).await;
    for witness in &*witnesses {
        assert_eq!(witness.verify(), CROWD);
    }
}
