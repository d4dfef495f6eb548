//! C1: at most one exclusive grant is live.

use std::sync::Arc;

use lockkit_core::Renewal;
use tokio::task::JoinSet;

use crate::{
    case::{Needs, cases},
    env::{Env, LONGEST_SHORT_LEASE, becomes_free, give_back, lock_briefly, long, take},
    wait::{a_minute, step, within},
    witness::{Stay, Witness},
};

cases! {
    c1_a_held_lock_is_refused_to_others: Needs::EXCLUSIVE,
        "a store that grants a held lock, or that mixes up two names";
    c1_a_storm_of_tasks_never_overlaps: Needs::EXCLUSIVE,
        "a check and a set that are not atomic; a waiter that takes the lock without asking the \
         store again";
    c1_overstayed_leases_never_overlap: Needs::EXCLUSIVE.lease(),
        "a local deadline after the store's, for example one that counts from the reply";
}

async fn c1_a_held_lock_is_refused_to_others(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let held = take(&env.lock(&a, "x", long())).await;
    let other = env.lock(&b, "x", long());
    for _ in 0..3 {
        assert!(other.try_lock().await.unwrap().is_none(), "C1: granted twice");
        assert!(
            env.lock(&a, "x", long()).try_lock().await.unwrap().is_none(),
            "not reentrant by itself"
        );
    }
    let neighbour = take(&env.lock(&b, "y", long())).await;
    give_back(neighbour).await;
    give_back(held).await;
    give_back(take(&other).await).await;
}

async fn c1_a_storm_of_tasks_never_overlaps(env: Env) {
    const LOCKERS: usize = 3;
    const TASKS: usize = 4;
    const ROUNDS: usize = 8;
    let witness = Arc::new(Witness::default());
    let mut tasks = JoinSet::new();
    for _ in 0..LOCKERS {
        let locker = env.locker().await;
        for _ in 0..TASKS {
            let lock = env.lock(&locker, "hot", long());
            let witness = Arc::clone(&witness);
            tasks.spawn(async move {
                for round in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    let mut stay = Stay::begin(&guard);
                    if round % 2 == 0 {
                        tokio::task::yield_now().await;
                    } else {
                        step().await;
                    }
                    assert!(stay.look(&guard), "a lease of 30 s was lost");
                    witness.record(stay);
                    if round % 3 == 0 { drop(guard) } else { give_back(guard).await }
                }
            });
        }
    }
    within(a_minute(), "the end of the storm", tasks.join_all()).await;
    assert_eq!(witness.verify(), LOCKERS * TASKS * ROUNDS);
}

/// Every holder stays until lockkit reports the end of its lease, and never gives anything back.
async fn c1_overstayed_leases_never_overlap(env: Env) {
    const LOCKERS: usize = 3;
    let rounds = env.rounds(3);
    let witness = Arc::new(Witness::default());
    let mut tasks = JoinSet::new();
    for _ in 0..LOCKERS {
        let locker = env.locker().await;
        let env = env.clone();
        let witness = Arc::clone(&witness);
        tasks.spawn(async move {
            for _ in 0..rounds {
                let guard = lock_briefly(&env, &locker, "short", Renewal::Manual).await;
                let mut stay = Stay::begin(&guard);
                while stay.look(&guard) {
                    step().await;
                }
                witness.record(stay);
                drop(guard);
            }
        });
    }
    let bound = a_minute() + LONGEST_SHORT_LEASE * 9;
    within(bound, "the end of all leases", tasks.join_all()).await;
    assert_eq!(witness.verify(), LOCKERS * rounds);
    let locker = env.locker().await;
    becomes_free(&env.lock(&locker, "short", long())).await;
}
