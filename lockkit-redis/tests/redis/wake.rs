//! Wake-ups: one waiter for each release, none lost, nothing left subscribed.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use lockkit_core::spi::{Attempt, Backend as _, Claim, Released, Wait};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::*;

type Waiter = (Box<dyn Claim>, Arc<Bell>);

/// Waiters in the order in which they came.
async fn queue(store: &Store, name: &str, length: usize) -> Vec<Waiter> {
    let mut waiters = Vec::new();
    for _ in 0..length {
        let (mut claim, bell) = store.waiter(name);
        assert!(busy(claim.attempt(Wait::Queue).await).0);
        waiters.push((claim, bell));
    }
    waiters
}

fn rings(waiters: &[Waiter]) -> Vec<usize> {
    waiters.iter().map(|(_, bell)| bell.rings()).collect()
}

async fn holder(store: &Store, name: &str) -> Box<dyn Claim> {
    let mut holder = store.claim(name);
    granted(holder.attempt(Wait::No).await);
    holder
}

/// All is over: nothing is subscribed, and nothing but a fence is left.
async fn assert_clean(store: &Store, name: &str) {
    store.settle().await;
    assert!(store.admin.channels().await.is_empty());
    assert_eq!(store.admin.keys().await, [fence_key(name)]);
}

#[tokio::test]
async fn c8_one_release_rings_the_first_waiter_alone() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 64).await;
    store.admin.reset_calls().await;
    holder.release().await.unwrap();
    waiters[0].1.heard().await;
    store.settle().await;
    assert_eq!(rings(&waiters).iter().sum::<usize>(), 1);

    // And so on down the queue: two requests for each grant, and the settling one.
    for at in 0..waiters.len() {
        let (claim, _) = &mut waiters[at];
        granted(claim.attempt(Wait::Queue).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        if let Some((_, next)) = waiters.get(at + 1) {
            next.heard().await;
        }
    }
    assert_eq!(rings(&waiters), [1; 64]);
    assert_eq!(store.admin.requests().await, 1 + 1 + 2 * 64 + 1);
    drop(waiters);
    assert_clean(&store, "a").await;
}

#[tokio::test]
async fn c6_a_waiter_that_was_rung_and_leaves_passes_the_ring_on() {
    let store = Store::start().await;
    for way_out in ["release", "drop"] {
        let mut holder = holder(&store, "a").await;
        let mut waiters = queue(&store, "a", 3).await;
        holder.release().await.unwrap();
        waiters[0].1.heard().await;
        assert_eq!(rings(&waiters), [1, 0, 0]);
        let (mut first, _) = waiters.remove(0);
        match way_out {
            "release" => assert_eq!(first.release().await.unwrap(), Released::NotHeld),
            _ => drop(first),
        }
        assert_eq!(rings(&waiters), [1, 0], "{way_out}");
        // One that was not rung takes nothing along.
        drop(waiters.remove(1));
        assert_eq!(rings(&waiters), [1], "{way_out}");
        let (mut last, _) = waiters.remove(0);
        granted(last.attempt(Wait::Queue).await);
        last.release().await.unwrap();
    }
    assert_clean(&store, "a").await;
}

#[tokio::test]
async fn c8_a_waiter_that_never_moves_swallows_one_wake_up_and_no_more() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    holder.release().await.unwrap();
    waiters[0].1.heard().await;
    // The first one does nothing; the second one's poll finds the lock.
    granted(waiters[1].0.attempt(Wait::Queue).await);
    waiters[1].0.release().await.unwrap();
    waiters[2].1.heard().await;
    granted(waiters[2].0.attempt(Wait::Queue).await);
}

#[tokio::test]
async fn c6_a_ring_is_not_spent_by_an_attempt_without_an_answer() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 2).await;
    holder.release().await.unwrap();
    waiters[0].1.heard().await;
    let (mut first, _) = waiters.remove(0);
    store.server.pause().unwrap();
    assert!(timeout(Duration::from_millis(20), first.attempt(Wait::Queue)).await.is_err());
    assert_eq!(rings(&waiters), [0]);
    // It never gets as far as sending a release.
    assert!(timeout(Duration::from_millis(20), first.release()).await.is_err());
    assert_eq!(rings(&waiters), [1]);
    store.server.resume().unwrap();
    let (mut second, bell) = waiters.remove(0);
    lock(&mut second, &bell).await;
    second.release().await.unwrap();
    assert_clean(&store, "a").await;
}

#[tokio::test]
async fn c6_a_ring_that_came_during_a_successful_attempt_goes_to_the_next() {
    let store = Store::start().await;
    let first_holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 2).await;
    // Freed and rung by somebody whose message overtakes our knowledge of the grant.
    store.admin.ask::<()>(&["DEL", &lock_key("a")]).await;
    let (mut first, bell) = waiters.remove(0);
    store.admin.ask::<()>(&["PUBLISH", &format!("{}:free", lock_key("a")), ""]).await;
    bell.heard().await;
    let attempt = first.attempt(Wait::Queue);
    let publish = store.admin.ask::<()>(&["PUBLISH", "lockkit:mutex:{a}:free", ""]);
    let (attempt, ()) = tokio::join!(attempt, publish);
    granted(attempt);
    store.settle().await;
    // Whether the message came before or after the reply: the next one looks, and finds it busy.
    assert!(rings(&waiters)[0] <= 1);
    first.release().await.unwrap();
    waiters[0].1.heard().await;
    drop((first_holder, waiters));
}

#[tokio::test]
async fn c6_the_last_waiter_that_leaves_unsubscribes() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    let channel = format!("{}:free", lock_key("a"));
    for _ in 0..3 {
        assert_eq!(store.admin.channels().await, [&*channel]);
        let (mut claim, _) = waiters.pop().unwrap();
        claim.release().await.unwrap();
        store.settle().await;
    }
    assert!(store.admin.channels().await.is_empty());
    // By a grant, too.
    let (mut last, bell) = store.waiter("a");
    busy(last.attempt(Wait::Queue).await);
    assert_eq!(store.admin.channels().await, [&*channel]);
    holder.release().await.unwrap();
    lock(&mut last, &bell).await;
    store.settle().await;
    assert!(store.admin.channels().await.is_empty());
    last.release().await.unwrap();
    assert_clean(&store, "a").await;
}

#[tokio::test]
async fn c6_an_attempt_dropped_while_it_subscribes_leaves_no_subscription() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    for pause in 0..60 {
        let (mut claim, _) = store.waiter("a");
        let _ = timeout(Duration::from_micros(pause * 10), claim.attempt(Wait::Queue)).await;
        claim.release().await.unwrap();
    }
    store.settle().await;
    assert!(store.admin.channels().await.is_empty());
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert_clean(&store, "a").await;
}

/// More than the queue of the connection has room for, and no request comes after them.
#[tokio::test]
async fn c6_thousands_who_leave_at_once_leave_no_subscription() {
    let store = Store::start().await;
    let foreign = "for i = 1, 3000 do redis.call('SET', 'lockkit:mutex:{' .. i .. '}', 'x') end";
    store.admin.ask::<()>(&["EVAL", foreign, "0"]).await;
    let mut waiters = Vec::new();
    for name in 1..=3000 {
        waiters.extend(queue(&store, &name.to_string(), 1).await);
    }
    assert_eq!(store.admin.channels().await.len(), 3000);
    drop(waiters);
    timeout(SOON, async { while !store.admin.channels().await.is_empty() {} }).await.unwrap();
}

#[tokio::test]
async fn c6_who_leaves_behind_many_requests_leaves_no_subscription() {
    let store = Store::start().await;
    let _holder = holder(&store, "a").await;
    let waiter = queue(&store, "a", 1).await;
    let mut claims: Vec<_> = (0..1100).map(|n| store.claim(&format!("other {n}"))).collect();
    let attempts = join_all(claims.iter_mut().map(|claim| claim.attempt(Wait::No)));
    let mut attempts = std::pin::pin!(tokio::task::unconstrained(attempts));
    // They fill the queue of the connection.
    assert!(attempts.as_mut().now_or_never().is_none());
    drop(waiter);
    assert!(attempts.await.into_iter().all(|attempt| matches!(attempt, Ok(Attempt::Granted(_)))));
    timeout(SOON, async { while !store.admin.channels().await.is_empty() {} }).await.unwrap();
}

/// Waiters come and go on one name while the lock goes round: no ring may be lost, as nothing else wakes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_no_wake_up_is_lost_between_subscribing_unsubscribing_and_leaving() {
    let store = Arc::new(Store::start().await);
    let mut tasks = JoinSet::new();
    for task in 0..8_u64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for round in 0..150_u64 {
                let (mut claim, bell) = store.waiter("a");
                let impatient = (task + round) % 3 == 0;
                let patience = if impatient { Duration::from_micros(round * 7 % 900) } else { SOON };
                if timeout(patience, lock(&mut claim, &bell)).await.is_ok() && round % 4 == 0 {
                    tokio::task::yield_now().await;
                }
                claim.release().await.unwrap();
                if round % 2 == 0 {
                    sleep(Duration::from_micros(task * 50)).await;
                }
            }
        });
    }
    tasks.join_all().await;
    assert_clean(&store, "a").await;
}

#[tokio::test]
async fn c8_contended_grants_cost_a_constant_number_of_requests() {
    let store = Arc::new(Store::start().await);
    granted(store.claim("warm").attempt(Wait::No).await);
    store.admin.reset_calls().await;
    let (tasks, rounds) = (64, 10);
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let store = Arc::clone(&store);
        running.spawn(async move {
            for _ in 0..rounds {
                let (mut claim, bell) = store.waiter("a");
                lock(&mut claim, &bell).await;
                sleep(Duration::from_millis(1)).await;
                claim.release().await.unwrap();
            }
        });
    }
    running.join_all().await;
    // One attempt that finds it busy, one that wins, one release; and what the subscription costs at the start.
    let requests = store.admin.requests().await;
    assert!(requests <= 4 * tasks * rounds, "{requests} requests for {} grants", tasks * rounds);
}

#[tokio::test]
async fn c13_without_rights_on_channels_a_release_works_and_waiters_poll() {
    let store = Store::start().await;
    store.admin.ask::<()>(&["ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels"]).await;
    let url = format!("redis://mute:pw@127.0.0.1:{}/", store.server.port());
    let mute = connect(&url).await.unwrap();
    let mut holder = mute.claim(spec("a")).unwrap();
    granted(holder.attempt(Wait::No).await);
    let (mut other, bell) = store.waiter("a");
    busy(other.attempt(Wait::Queue).await);
    let mut waiter = mute.claim(spec("a")).unwrap();
    assert!(busy(waiter.attempt(Wait::Queue).await).1.is_some());
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    // Nobody was told.
    granted(waiter.attempt(Wait::Queue).await);
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    store.settle().await;
    assert_eq!(bell.rings(), 0);
}

#[tokio::test]
async fn c8_a_server_that_is_busy_when_asked_to_subscribe_is_asked_again() {
    let store = Store::start_with(&["--lua-time-limit", "20"], "").await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, bell) = queue(&store, "a", 1).await.remove(0);
    store.admin.ask::<()>(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]).await;
    bell.heard().await;
    store.settle().await;
    let blocker = Admin::to(&store.server).await;
    let endless = tokio::spawn(async move {
        blocker.try_ask::<()>(&["EVAL", "while true do end", "0"]).await.unwrap_err();
    });
    let is_busy = async || store.admin.try_ask::<()>(&["PING"]).await.is_err();
    timeout(SOON, async { while !is_busy().await {} }).await.unwrap();
    let error = waiter.attempt(Wait::Queue).await.unwrap_err();
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
    store.admin.ask::<()>(&["SCRIPT", "KILL"]).await;
    endless.await.unwrap();
    busy(waiter.attempt(Wait::Queue).await);
    let before = bell.rings();
    holder.release().await.unwrap();
    while bell.rings() == before {
        bell.heard().await;
    }
    granted(waiter.attempt(Wait::Queue).await);
}

#[tokio::test]
async fn a_server_without_resp3_is_polled() {
    let store = Store::start_with(&["--rename-command", "HELLO", ""], "").await;
    assert!(!store.redis.descriptor().capabilities.push);
    let mut holder = holder(&store, "a").await;
    let (mut waiter, _) = store.waiter("a");
    let (queued, retry_after) = busy(waiter.attempt(Wait::Queue).await);
    assert!(!queued && retry_after.is_some());
    holder.release().await.unwrap();
    granted(waiter.attempt(Wait::Queue).await);
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    assert_clean(&store, "a").await;
}
