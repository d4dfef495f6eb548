//! Waiting on the server, and giving it up.

use std::time::{Duration, Instant};

use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Released, Wait},
};

use crate::support::*;

on_each! {
    c8_a_wait_of_300_ms_takes_300_ms,
    c8_a_release_wakes_the_waiter_on_the_server,
    c6_the_query_of_a_cancelled_waiter_is_gone_from_the_server_within_a_second,
    c6_one_waiter_of_a_process_asks_and_passes_it_on,
    c8_an_exhausted_pool_is_a_clear_error_inside_the_bound,
    c8_a_waiter_that_comes_late_stands_behind_the_others,
}

async fn c8_a_wait_of_300_ms_takes_300_ms(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    // The server alone would take a whole second.
    let (bound, most) = (Duration::from_millis(300), Duration::from_millis(800));
    let mut waiter = store.claim("a");
    let started = Instant::now();
    assert!(!busy(waiter.attempt(Wait::Block(bound)).await).0);
    let took = started.elapsed();
    assert!(took >= bound && took < most, "{took:?}");
    until("the query is gone", || async { store.admin.waiting().await == 0 }).await;
    let locker = store.locker().await;
    let started = Instant::now();
    assert!(locker.mutex("a").unwrap().lock_timeout(bound).await.unwrap().is_none());
    let took = started.elapsed();
    assert!(took >= bound && took < most, "{took:?}");
    locker.shutdown().await.unwrap();
}

async fn c8_a_release_wakes_the_waiter_on_the_server(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let (first, second) = (store.locker().await, store.locker().await);
    let guard = first.mutex("a").unwrap().lock().await.unwrap();
    let waiting = tokio::spawn(async move {
        let guard = second.mutex("a").unwrap().lock().await.unwrap();
        let at = Instant::now();
        guard.release().await.unwrap();
        (second, at)
    });
    until("it waits", || async { store.admin.waiting().await == 1 }).await;
    let released = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    let (second, at) = waiting.await.unwrap();
    // Without the wake-up, the wait on the server would go on for ten seconds.
    assert!(at.duration_since(released) < Duration::from_secs(1), "{:?}", at.duration_since(released));
    first.shutdown().await.unwrap();
    second.shutdown().await.unwrap();
}

async fn c6_the_query_of_a_cancelled_waiter_is_gone_from_the_server_within_a_second(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let (holder, locker) = (store.locker().await, store.locker().await);
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let waiter = locker.clone();
    let waiting = tokio::spawn(async move { drop(waiter.mutex("a").unwrap().lock().await) });
    until("it waits", || async { store.admin.waiting().await == 1 }).await;
    let cancelled = Instant::now();
    waiting.abort();
    until("the query is gone", || async { store.admin.waiting().await == 0 }).await;
    assert!(cancelled.elapsed() < Duration::from_secs(1), "{:?}", cancelled.elapsed());
    guard.release().await.unwrap();
    let guard = locker.mutex("a").unwrap().try_lock().await.unwrap().expect("nobody has it");
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
    holder.shutdown().await.unwrap();
}

async fn c6_one_waiter_of_a_process_asks_and_passes_it_on(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let (holder, locker) = (store.locker().await, store.locker().await);
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let locker = locker.clone();
        waiting.push(tokio::spawn(async move {
            let guard = locker.mutex("a").unwrap().lock().await.unwrap();
            guard.release().await.unwrap();
        }));
    }
    until("one waits", || async { store.admin.waiting().await == 1 }).await;
    // Whoever asks is cancelled, and so is one who never did.
    waiting.remove(0).abort();
    waiting.pop().unwrap().abort();
    until("the next one waits", || async { store.admin.waiting().await == 1 }).await;
    guard.release().await.unwrap();
    for waiter in waiting {
        tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
    }
    locker.shutdown().await.unwrap();
    holder.shutdown().await.unwrap();
}

async fn c8_an_exhausted_pool_is_a_clear_error_inside_the_bound(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let locker = store.locker().await;
    let mut guards = Vec::new();
    for name in ["a", "b"] {
        guards.push(locker.mutex(name).unwrap().lock().await.unwrap());
    }
    let bound = Duration::from_millis(300);
    let started = Instant::now();
    let refused = locker.mutex("c").unwrap().lock_timeout(bound).await.unwrap_err();
    assert!(started.elapsed() < bound + Duration::from_millis(150), "{:?}", started.elapsed());
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    for part in ["all 2 connections", "pool_size", "\"c\""] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    // What has no lock of its own goes on.
    assert_eq!(locker.inspect(guards[0].name()).await.unwrap().holders.len(), 1);
    for guard in guards {
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
    }
    locker.shutdown().await.unwrap();
}

async fn c8_a_waiter_that_comes_late_stands_behind_the_others(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let other = store.another().await;
    let (mut first, mut second) =
        (other.claim(spec_for("a", TTL)).unwrap(), other.claim(spec_for("a", TTL)).unwrap());
    busy(first.attempt(Wait::Block(Duration::from_millis(20))).await);
    until("its query is gone", || async { store.admin.waiting().await == 0 }).await;
    let started = Instant::now();
    // At once, and without a word to the server. The first one's query is gone before that.
    busy(second.attempt(Wait::Block(SOON)).await);
    assert!(started.elapsed() < Duration::from_millis(20));
    // One who does not wait asks, whoever waits.
    let mut third = other.claim(spec_for("a", TTL)).unwrap();
    holder.release().await.unwrap();
    granted(third.attempt(Wait::No).await);
    third.release().await.unwrap();
    first.release().await.unwrap();
    granted(second.attempt(Wait::Block(SOON)).await);
}
