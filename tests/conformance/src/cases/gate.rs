//! The process gate: the tasks of one process are served in order, cost the store little, and do
//! not keep others out.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{FutureExt as _, future::BoxFuture};
use lockkit_core::{FencingToken, LockGuard, Locker};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, give_back, long, take},
    faulty::Op,
    wait::{STEP, eventually, soon, step, within},
};

cases! {
    c12_tasks_of_one_process_are_served_in_order: Needs::MUTEX,
        "tasks of one process that are served in no order";
    c12_others_are_served_between_transfers: Needs::MUTEX.ability(Ability::Transfer).fair(),
        "a process that passes a lock only among its own tasks";
    c8_a_crowd_of_one_process_costs_little: Needs::MUTEX,
        "tasks of one process that each poll the store, or queue there";
    c8_a_transfer_costs_one_request: Needs::MUTEX.ability(Ability::Transfer),
        "a transfer inside a process through the queue of the store";
    c6_a_crowd_that_is_cancelled_leaves_nothing: Needs::MUTEX,
        "a lock that is transferred to a cancelled call";
}

const CROWD: usize = 24;

type Asking = BoxFuture<'static, LockGuard>;

/// Tasks of the locker that wait in the process's queue, one behind the other.
fn crowd<F: Future<Output = ()> + Send + 'static>(
    env: &Env,
    locker: &Locker,
    held: &LockGuard,
    task: impl Fn(usize, Asking) -> F,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for n in 0..CROWD {
        let lock = env.lock(locker, "x", long());
        let mut asking: Asking = async move { lock.lock().await.unwrap() }.boxed();
        // The task asks before the next one does, whenever its thread has time.
        assert!((&mut asking).now_or_never().is_none(), "the lock is taken");
        tasks.spawn(task(n, asking));
    }
    assert!(held.is_held());
    tasks
}

async fn c12_tasks_of_one_process_are_served_in_order(env: Env) {
    let locker = env.locker().await;
    let held = take(&env.lock(&locker, "x", long())).await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let tasks = crowd(&env, &locker, &held, |n, asking| {
        let served = Arc::clone(&served);
        async move {
            let guard = asking.await;
            served.lock().unwrap_or_else(PoisonError::into_inner).push((n, guard.fencing_token()));
            give_back(guard).await;
        }
    });
    let token = held.fencing_token();
    give_back(held).await;
    within(soon(), "the end of the line", tasks.join_all()).await;
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        served.iter().map(|(n, _)| *n).eq(0..CROWD),
        "C12: not in the order of asking: {served:?}"
    );
    let tokens = std::iter::once(token).chain(served.iter().map(|(_, token)| *token));
    assert!(tokens.clone().zip(tokens.skip(1)).all(|(a, b)| a < b), "C4: {served:?}");
}

async fn c12_others_are_served_between_transfers(env: Env) {
    let inside = env.locker().await;
    let outside = env.locker().await;
    let held = take(&env.lock(&inside, "x", long())).await;
    let last: FencingToken = held.fencing_token();
    let outsider = env.lock(&outside, "x", long());
    let waiting = tokio::spawn(async move { outsider.lock().await.unwrap() });
    let backend = env.backend().await;
    let name = env.name("x");
    eventually(soon(), async || match backend.inspect(&name).await.unwrap().waiters {
        Some(0) => Err("nobody waits in the store".to_owned()),
        _ => Ok(()),
    })
    .await;
    let served = Arc::new(Mutex::new(Vec::new()));
    let tasks = crowd(&env, &inside, &held, |_, asking| {
        let served = Arc::clone(&served);
        async move {
            let guard = asking.await;
            served.lock().unwrap_or_else(PoisonError::into_inner).push(guard.fencing_token());
            give_back(guard).await;
        }
    });
    give_back(held).await;
    let guard = within(soon(), "the outsider's grant", waiting).await.unwrap();
    let token = guard.fencing_token();
    assert!(token > last);
    give_back(guard).await;
    within(soon(), "the end of the line", tasks.join_all()).await;
    let served = served.lock().unwrap_or_else(PoisonError::into_inner);
    let before = served.iter().filter(|other| **other < token).count();
    assert!(before <= 16, "C12: {before} transfers while another process waited");
}

async fn c8_a_crowd_of_one_process_costs_little(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let held = take(&env.lock(&locker, "x", long())).await;
    let tasks =
        crowd(&env, &locker, &held, |_, asking| async move { give_back(asking.await).await });
    give_back(held).await;
    within(soon(), "the end of the line", tasks.join_all()).await;
    let asked = line.take_calls().iter().filter(|call| !matches!(call.op, Op::KeepAlive)).count();
    // Each grant takes one request, and each release another. A few more requests are allowed for
    // the tasks that joined the store's queue while the lock was held for long.
    let bound = (CROWD + 1) * 2 + CROWD / 2;
    assert!(asked <= bound, "{asked} requests for {} grants", CROWD + 1);
}

async fn c8_a_transfer_costs_one_request(env: Env) {
    let (locker, line) = env.spied_locker().await;
    let lock = env.lock(&locker, "x", long());
    let mut tasks = JoinSet::new();
    // Each hold is short, so no task waits in the store beside the holder.
    for _ in 0..CROWD {
        let lock = lock.clone();
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            step().await;
            give_back(guard).await;
        });
    }
    within(soon(), "the end of the line", tasks.join_all()).await;
    let calls = line.take_calls();
    let count = |op| calls.iter().filter(|call| call.op == op).count();
    let asked = count(Op::Attempt) + count(Op::Transfer) + count(Op::Release);
    assert!(count(Op::Transfer) >= CROWD / 2, "only {} transfers", count(Op::Transfer));
    let bound = CROWD + CROWD / 4;
    assert!(asked <= bound, "{asked} requests for {CROWD} grants");
}

async fn c6_a_crowd_that_is_cancelled_leaves_nothing(env: Env) {
    let (locker, line) = env.spied_locker().await;
    for round in 0..env.rounds(6) {
        let held = take(&env.lock(&locker, "x", long())).await;
        let tasks = crowd(&env, &locker, &held, |n, asking| async move {
            let patience = STEP * u32::try_from(1 + (n * 5 + round) % 37).unwrap();
            if let Ok(guard) = timeout(patience, asking).await {
                if n % 2 == 0 { drop(guard) } else { give_back(guard).await }
            }
        });
        drop(held);
        within(soon(), "the end of the line", tasks.join_all()).await;
        eventually(soon(), async || match line.live_claims() {
            0 => Ok(()),
            live => Err(format!("C6: {live} claims live on")),
        })
        .await;
    }
    give_back(take(&env.lock(&env.locker().await, "x", long())).await).await;
}
