//! C12: where `fair` is claimed, waiters are granted in the order in which the store saw them.

use std::sync::Arc;

use tokio::{sync::Mutex, task::JoinSet, time::Instant};

use crate::{
    case::{Needs, cases},
    env::{Env, give_back, long, take},
    wait::{soon, step, within},
};

cases! {
    c12_waiters_are_granted_in_order: Needs::EXCLUSIVE.fair(),
        "a queue in each client instead of the store; a broadcast after which all waiters race";
    c12_a_newcomer_never_barges: Needs::EXCLUSIVE.fair(),
        "a store that grants a free lock to a newcomer before the first waiter";
    c12_leavers_do_not_change_the_order: Needs::EXCLUSIVE.fair(),
        "a queue that changes its order when a waiter leaves";
}

async fn c12_waiters_are_granted_in_order(env: Env) {
    order(env, 8, &[]).await;
}

async fn c12_leavers_do_not_change_the_order(env: Env) {
    order(env, 8, &[0, 3, 4]).await;
}

async fn order(env: Env, count: usize, leavers: &[usize]) {
    let first = env.locker().await;
    let watch = env.lock(&first, "x", long());
    let held = take(&watch).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    let mut leaving = Vec::new();
    for n in 0..count {
        let lock = env.lock(&env.locker().await, "x", long());
        if leavers.contains(&n) {
            leaving.push(tokio::spawn(async move { drop(lock.lock().await.unwrap()) }));
        } else {
            let order = Arc::clone(&order);
            waiters.spawn(async move {
                let guard = lock.lock().await.unwrap();
                order.lock().await.push(n);
                give_back(guard).await;
            });
        }
        env.queued(n + 1, async || watch.inspect().await).await;
    }
    for waiter in leaving {
        waiter.abort();
        drop(waiter.await);
    }
    env.queued(count - leavers.len(), async || watch.inspect().await).await;
    give_back(held).await;
    within(soon(), "the end of the queue", waiters.join_all()).await;
    let expected: Vec<_> = (0..count).filter(|n| !leavers.contains(n)).collect();
    assert_eq!(*order.lock().await, expected, "C12: not granted in the order of asking");
}

async fn c12_a_newcomer_never_barges(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let c = env.locker().await;
    let holder = env.lock(&a, "x", long());
    let waiter = env.lock(&b, "x", long());
    let newcomer = env.lock(&c, "x", long());
    for _ in 0..10 {
        let held = take(&holder).await;
        let waiter = waiter.clone();
        let waiting = tokio::spawn(async move {
            let guard = waiter.lock().await.unwrap();
            let token = guard.fencing_token();
            give_back(guard).await;
            token
        });
        env.queued(1, async || holder.inspect().await).await;
        let barge = async {
            let start = Instant::now();
            loop {
                if let Some(guard) = newcomer.try_lock().await.unwrap() {
                    let token = guard.fencing_token();
                    give_back(guard).await;
                    return token;
                }
                assert!(start.elapsed() < soon(), "the newcomer never gets it");
                tokio::task::yield_now().await;
            }
        };
        let release = async {
            step().await;
            give_back(held).await
        };
        let (late, early, _) =
            tokio::join!(barge, within(soon(), "the waiter's grant", waiting), release);
        assert!(early.unwrap() < late, "C12: a newcomer was granted before the one that waited");
    }
}
