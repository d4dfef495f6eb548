//! Queues: who is woken, and by whom.

use std::sync::Arc;

use lockkit_core::{
    Kind,
    spi::{Released, Wait},
};
use tokio::task::JoinSet;

use crate::support::*;

#[tokio::test]
async fn c1_the_one_behind_a_waiter_that_gives_up_is_not_the_first() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let mut claims = [(); 4].map(|()| claim(&zk, "a"));
    granted(claims[0].attempt(Wait::Queue).await);
    for waiter in &mut claims[1..] {
        assert!(busy(waiter.attempt(Wait::Queue).await));
    }
    let [holder, gives_up, gone, last] = &mut claims;
    // Released, which it never held.
    assert_eq!(gives_up.release().await.unwrap(), Released::NotHeld);
    woken(gone).await;
    assert!(busy(gone.attempt(Wait::Queue).await), "its predecessor was no holder");
    // Now it stands right behind the holder, and the last one right behind it.
    assert_eq!(gone.release().await.unwrap(), Released::NotHeld);
    woken(last).await;
    assert!(busy(last.attempt(Wait::Queue).await));
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    woken(last).await;
    granted(last.attempt(Wait::Queue).await);
    assert_eq!(last.release().await.unwrap(), Released::Freed);
    drop(claims);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c1_a_waiter_whose_predecessors_go_at_once_looks_again() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let mut claims = [(); 3].map(|()| claim(&zk, "a"));
    granted(claims[0].attempt(Wait::Queue).await);
    assert!(busy(claims[1].attempt(Wait::Queue).await));
    assert!(busy(claims[2].attempt(Wait::Queue).await));
    claims[1].release().await.unwrap();
    claims[0].release().await.unwrap();
    let [_, _, last] = &mut claims;
    granted(last.attempt(Wait::Queue).await);
    last.release().await.unwrap();
    bed.assert_clean().await;
}

/// Nobody polls here: a wake-up that gets lost between a look and its watch fails the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_hand_overs_that_race_with_watches_lose_no_wake_up() {
    let bed = Bed::shared();
    let sessions = [Arc::new(bed.connect("").await), Arc::new(bed.connect("").await)];
    let last = Arc::new(tokio::sync::Mutex::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let (zk, last) = (Arc::clone(&sessions[task % 2]), Arc::clone(&last));
        tasks.spawn(async move {
            for round in 0..60 {
                let mut claim = claim(&zk, "a");
                let token = lock(&mut claim).await.token.get();
                {
                    let mut last = last.try_lock().expect("two holders");
                    assert!(token > *last, "{token} after {last}");
                    *last = token;
                    tokio::task::yield_now().await;
                }
                // Some leave it to the session.
                if round % 3 == 0 {
                    drop(claim);
                } else {
                    assert_eq!(claim.release().await.unwrap(), Released::Freed);
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    bed.assert_clean().await;
}

#[tokio::test]
async fn c12_waiters_of_two_clients_are_served_in_order() {
    let bed = Bed::shared();
    let sessions = [bed.connect("").await, bed.connect("").await];
    let mut holder = claim(&sessions[0], "a");
    granted(holder.attempt(Wait::Queue).await);
    let mut waiters: Vec<_> = (0..10).map(|n| claim(&sessions[n % 2], "a")).collect();
    for waiter in &mut waiters {
        assert!(busy(waiter.attempt(Wait::Queue).await));
    }
    let admin = bed.admin().await;
    let queue = admin.children(&bed.folder(Kind::Mutex, "a")).await;
    let mut before = holder;
    for (mut waiter, node) in waiters.into_iter().zip(&queue[1..]) {
        before.release().await.unwrap();
        let token = lock(&mut waiter).await.token.get();
        let path = bed.folder(Kind::Mutex, "a") + "/" + node;
        assert_eq!(token, admin.created(&path).await);
        before = waiter;
    }
    before.release().await.unwrap();
    bed.assert_clean().await;
}

#[tokio::test]
async fn many_lockers_of_one_machine_use_one_connection_each() {
    let bed = Bed::own(options());
    let mut lockers = Vec::new();
    for _ in 0..70 {
        lockers.push(bed.locker("").await);
    }
    let mut guards = Vec::new();
    for (n, locker) in lockers.iter().enumerate() {
        for lock in 0..3 {
            guards.push(locker.mutex(&format!("{n}-{lock}")).unwrap().lock().await.unwrap());
        }
    }
    // The one that asks is a connection, too.
    assert_eq!(bed.server.metric("zk_num_alive_connections").unwrap(), 71);
    assert_eq!(bed.server.metric("zk_ephemerals_count").unwrap(), 210);
    for guard in guards {
        guard.release().await.unwrap();
    }
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
    until("all are gone", async || bed.server.metric("zk_num_alive_connections").unwrap() == 1).await;
    bed.assert_clean().await;
}
