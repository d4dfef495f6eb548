//! C6: a future that is dropped anywhere leaves nothing behind.

use std::{
    env,
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::LockGuard;
use tokio::{
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

use crate::{
    case::{Needs, cases},
    env::{Env, becomes_free, give_back, long, take},
    harness::{Faults, Link as _},
    lock::Flavor,
    wait::{STEP, a_minute, eventually, ms, soon, within},
    witness::{Stay, Witness},
};

cases! {
    c6_dropped_lock_calls_leave_nothing: Needs::EXCLUSIVE,
        "a cancelled call that does not undo its applied request";
    c6_dropped_lock_calls_leave_nothing_when_contended: Needs::EXCLUSIVE,
        "a cancelled waiter that stays in the queue, or keeps a grant";
    c6_a_release_dropped_midway_still_frees: Needs::EXCLUSIVE,
        "a release that ends when its caller is cancelled";
    c6_a_cancelled_waiter_passes_its_wake_up_on: Needs::EXCLUSIVE,
        "a wake-up that is lost with a cancelled waiter";
    c6_a_cancelled_waiter_leaves_the_store_at_once: Needs::EXCLUSIVE.blocking(),
        "an attempt that still waits in the store after its caller left, and takes the next turn";
    c6_dropped_tries_and_inspections_leave_nothing: Needs::EXCLUSIVE,
        "a cancelled try that leaves a lock; a connection that is lost with its caller";
}

const TASKS: usize = 16;
/// This must not divide the number of lockers, so that each name meets all of them.
const CONTENDED: usize = 4;
/// How many claims of a locker may live when a task drops its next call. Without a limit, a slow
/// store would get calls faster than it can undo them.
const MOST_CLAIMS: usize = 64;
/// 2,000 for the mutex; a tenth of it for each other lock, which shares most of the code.
fn cancellations(flavor: Flavor) -> usize {
    let all = match env::var("LOCKKIT_TEST_CANCELLATIONS") {
        Ok(text) => text.parse().expect("LOCKKIT_TEST_CANCELLATIONS is a number"),
        Err(_) => 2_000,
    };
    if flavor == Flavor::Mutex { all } else { all / 10 }
}

async fn c6_dropped_lock_calls_leave_nothing(env: Env) {
    storm(env, TASKS).await;
}

async fn c6_dropped_lock_calls_leave_nothing_when_contended(env: Env) {
    storm(env, CONTENDED).await;
}

/// Drops calls at random points, and gives back the granted locks in every possible way.
async fn storm(env: Env, names: usize) {
    // One locker uses the store as it is. In the other two, requests take long enough to be cut on
    // the way to the store or on the way back, also in memory.
    let (slow_there, there) = env.spied_locker().await;
    there.set(Faults { request_delay: STEP, ..Faults::NONE });
    let (slow_back, back) = env.spied_locker().await;
    back.set(Faults { reply_delay: STEP, ..Faults::NONE });
    let (plain, straight) = env.spied_locker().await;
    let lockers = [(plain, &straight), (slow_there, &there), (slow_back, &back)];
    let witnesses: Arc<Vec<Witness>> = Arc::new((0..names).map(|_| Witness::default()).collect());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let name = task % names;
        let (locker, line) = &lockers[task % lockers.len()];
        let lock = env.lock(locker, &format!("n{name}"), long());
        let line = Arc::clone(line);
        let witnesses = Arc::clone(&witnesses);
        let rounds = cancellations(env.flavor()).div_ceil(TASKS);
        tasks.spawn(async move {
            for _ in 0..rounds {
                while line.live_claims() >= MOST_CLAIMS {
                    sleep(STEP).await;
                }
                if let Some(guard) = cut_short(lock.lock()).await {
                    use_and_leave(guard.unwrap(), &witnesses[name]).await;
                }
            }
        });
    }
    within(a_minute() * 2, "the end of the storm", tasks.join_all()).await;
    for witness in &*witnesses {
        witness.verify();
    }
    // After a store paused for a while, thousands of calls must be undone.
    eventually(a_minute(), async || {
        match [&straight, &there, &back].map(|line| line.live_claims()) {
            [0, 0, 0] => Ok(()),
            claims => Err(format!("C6: {claims:?} claims of dropped calls are not over")),
        }
    })
    .await;
    let other = env.locker().await;
    for name in 0..names {
        becomes_free(&env.lock(&other, &format!("n{name}"), long())).await;
    }
}

async fn use_and_leave(guard: LockGuard, witness: &Witness) {
    let mut stay = Stay::begin(&guard);
    if rand::random() {
        yield_now().await;
    }
    assert!(stay.look(&guard), "a lease of 30 s was lost");
    witness.record(stay);
    match rand::random_range(0..3) {
        0 => drop(guard),
        1 => give_back(guard).await,
        _ => drop(cut_short(guard.release()).await),
    }
}

/// Drops the future before, during or after the round trip of a request. The runtime's timers are
/// too coarse for that.
async fn cut_short<T>(future: impl Future<Output = T>) -> Option<T> {
    let after = rand::random_range(Duration::ZERO..STEP * 3);
    let start = Instant::now();
    let cut = async {
        while start.elapsed() < after {
            yield_now().await;
        }
    };
    tokio::select! {
        biased;
        output = future => Some(output),
        () = cut => None,
    }
}

async fn c6_a_release_dropped_midway_still_frees(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let lock = env.lock(&a, "x", long());
    let other = env.lock(&b, "x", long());
    for _ in 0..30 {
        let guard = take(&lock).await;
        cut_short(guard.release()).await;
        becomes_free(&other).await;
        becomes_free(&lock).await;
    }
}

async fn c6_a_cancelled_waiter_passes_its_wake_up_on(env: Env) {
    let lockers = [env.locker().await, env.locker().await, env.locker().await];
    let [holder, leaves, stays] = lockers.each_ref().map(|locker| env.lock(locker, "x", long()));
    for round in 0..15 {
        // A call of the last round may still be on its way.
        let guard = within(soon(), "the lock", holder.lock()).await.unwrap();
        let leaves = leaves.clone();
        let leaving = tokio::spawn(async move { leaves.lock().await });
        env.queued(1, async || holder.inspect().await).await;
        let stays = stays.clone();
        let staying = tokio::spawn(async move { stays.lock().await });
        env.queued(2, async || holder.inspect().await).await;
        let release = async {
            give_back(guard).await;
        };
        let cancel = async {
            for _ in 0..round {
                yield_now().await;
            }
            leaving.abort();
        };
        tokio::join!(release, cancel);
        // The lock may have been granted before: then its guard is dropped with the task's output.
        drop(leaving.await);
        let next = within(env.poll() + soon(), "the other waiter's grant", staying).await;
        give_back(next.unwrap().unwrap()).await;
        becomes_free(&holder).await;
    }
}

async fn c6_a_cancelled_waiter_leaves_the_store_at_once(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let (waiter, line) = env.spied_locker().await;
    let [holder, other, waits] = [&a, &b, &waiter].map(|locker| env.lock(locker, "x", long()));
    for settled in env.delays() {
        let guard = take(&holder).await;
        drop(line.take_calls());
        let waits = waits.clone();
        let waiting = tokio::spawn(async move { waits.lock().await });
        eventually(soon(), async || match line.take_calls()[..] {
            [] => Err("the waiter does not ask the store".to_owned()),
            _ => Ok(()),
        })
        .await;
        sleep(settled).await;
        waiting.abort();
        assert!(
            waiting.await.is_err_and(|error| error.is_cancelled()),
            "C1: granted while it is held"
        );
        eventually(soon(), async || match line.live_claims() {
            0 => Ok(()),
            _ => Err("C6: the attempt of a cancelled waiter is not over".to_owned()),
        })
        .await;
        give_back(guard).await;
        // A waiter that remained in the store's queue would be ahead of this one.
        give_back(take(&other).await).await;
    }
}

async fn c6_dropped_tries_and_inspections_leave_nothing(env: Env) {
    let (locker, line) = env.spied_locker().await;
    // The end of a lease would free what a dropped call left.
    let lock = env.lock(&locker, "x", long().with_ttl(ms(300_000)));
    for _ in 0..100 {
        if let Some(Ok(Some(guard))) = cut_short(lock.try_lock()).await {
            cut_short(guard.renew()).await;
            drop(guard);
        }
        drop(cut_short(lock.inspect()).await);
        drop(timeout(STEP, lock.lock_timeout(STEP * 2)).await);
    }
    // Many attempts may each need a new connection to the store.
    eventually(a_minute(), async || match line.live_claims() {
        0 => Ok(()),
        claims => Err(format!("C6: {claims} claims are not over")),
    })
    .await;
    becomes_free(&lock).await;
}
