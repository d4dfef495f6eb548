//! Tests of waits in the server, and of calls that give them up.

use std::time::{Duration, Instant};

use lockkit_core::{
    ErrorKind, LockOptions,
    spi::{Backend as _, Released, Wait},
    url::StoreUrl,
};
use lockkit_fixture::claims::given_up;
use lockkit_mysql::{Config, MySql};
use tokio::time::timeout;

use crate::support::*;

on_both! {
    c8_a_wait_of_300_ms_takes_300_ms,
    c6_the_query_of_a_cancelled_waiter_is_killed_on_the_server,
    c6_one_waiter_of_a_process_asks_and_passes_that_task_on,
    c8_an_exhausted_pool_is_a_clear_error_inside_the_bound,
    c8_the_smallest_pool_has_room_for_a_free_lock_beside_a_waiter,
    c8_a_late_waiter_queues_behind_the_others,
}

async fn c8_a_wait_of_300_ms_takes_300_ms(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("a");
    let mut warm = store.claim("b");
    granted(holder.attempt(Wait::No).await);
    // Both connections that are needed are open.
    granted(warm.attempt(Wait::No).await);
    assert_eq!(warm.release().await.unwrap(), Released::Freed);
    let bound = Duration::from_millis(300);
    let mut waiter = store.claim("a");
    // A stopped server ends no wait, so the client has to. The server counts in whole seconds, and
    // would take one or two.
    store.server.pause().unwrap();
    let started = Instant::now();
    let answer = timeout(SOON / 2, waiter.attempt(Wait::Block(bound)))
        .await
        .expect("it waits for the server");
    assert!(!busy(answer).0);
    assert!(started.elapsed() >= bound, "{:?}", started.elapsed());
    store.server.resume().unwrap();
    until("the query is gone", || async { store.admin.waiting().await == 0 }).await;
    let locker = store.locker().await;
    let bound = Duration::from_secs(2);
    let started = Instant::now();
    let answer = timeout(SOON, locker.mutex("a").unwrap().lock_timeout(bound))
        .await
        .expect("it waits for ever");
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Timeout);
    let took = started.elapsed();
    assert!(took >= bound, "{took:?}");
    locker.shutdown().await.unwrap();
}

async fn c6_the_query_of_a_cancelled_waiter_is_killed_on_the_server(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let holder = store.locker().await;
    let locker = store.locker().await;
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let waiter = locker.clone();
    let waiting = tokio::spawn(async move { drop(waiter.mutex("a").unwrap().lock().await) });
    until("it waits", || async { store.admin.waiting().await == 1 }).await;
    let killed = store.admin.status("Com_kill").await;
    waiting.abort();
    until("the query is gone", || async { store.admin.waiting().await == 0 }).await;
    // Without a kill, the query would run for ten seconds.
    assert!(store.admin.status("Com_kill").await > killed, "it has ended by itself");
    guard.release().await.unwrap();
    let guard = locker.mutex("a").unwrap().try_lock().await.unwrap().expect("nobody has it");
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
    holder.shutdown().await.unwrap();
}

async fn c6_one_waiter_of_a_process_asks_and_passes_that_task_on(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let holder = store.locker().await;
    let locker = store.locker().await;
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let mut first = store.claim("a");
    let asking = tokio::spawn(async move { first.attempt(Wait::Block(SOON)).await.map(drop) });
    until("it waits", || async { store.admin.waiting().await == 1 }).await;
    // A later waiter asks nothing, and learns at once that it has to wait.
    let answer = timeout(SOON / 2, store.claim("a").attempt(Wait::Block(SOON))).await;
    busy(answer.expect("it asks as well"));
    asking.abort();
    until("nobody waits", || async { store.admin.waiting().await == 0 }).await;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let locker = locker.clone();
        waiting.push(tokio::spawn(async move {
            let guard = locker.mutex("a").unwrap().lock().await.unwrap();
            guard.release().await.unwrap();
        }));
    }
    until("one waits", || async { store.admin.waiting().await == 1 }).await;
    // Cancels the waiter that asks, and one that never asked.
    waiting.remove(0).abort();
    waiting.pop().unwrap().abort();
    until("the next one waits", || async { store.admin.waiting().await == 1 }).await;
    guard.release().await.unwrap();
    for waiter in waiting {
        timeout(SOON, waiter).await.unwrap().unwrap();
    }
    locker.shutdown().await.unwrap();
    holder.shutdown().await.unwrap();
}

async fn c8_an_exhausted_pool_is_a_clear_error_inside_the_bound(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    // Without the bound, the wait for a connection may take as long as one request.
    let locker =
        store.locker().await.with_defaults(LockOptions::new().with_op_timeout(TTL / 2)).unwrap();
    let mut guards = Vec::new();
    for name in ["a", "b"] {
        guards.push(locker.mutex(name).unwrap().lock().await.unwrap());
    }
    let bound = Duration::from_millis(300);
    let refused =
        timeout(SOON, locker.mutex("c").unwrap().lock_timeout(bound)).await.expect("it waits on");
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    for part in ["all 2 connections", "pool_size", "\"c\""] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    // A request that needs no lock of its own still works.
    assert_eq!(locker.inspect(guards[0].name()).await.unwrap().holders.len(), 1);
    for guard in guards {
        guard.release().await.unwrap();
    }
    locker.shutdown().await.unwrap();
}

/// Catches a pool whose connections a single waiter can take.
async fn c8_the_smallest_pool_has_room_for_a_free_lock_beside_a_waiter(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("taken");
    granted(holder.attempt(Wait::No).await);
    let mut smallest = None;
    for size in 1..=2 {
        let url = format!(
            "{}?strategy=pessimistic&connect_timeout=20s&pool_size={size}",
            store.server.url()
        );
        match Config::from_url(StoreUrl::parse(&url).unwrap()) {
            Ok(config) => smallest = smallest.or(Some(config)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}"),
        }
    }
    let mysql = MySql::connect(smallest.expect("two are enough")).await.unwrap();
    let locker = locker(mysql);
    let waiter = locker.clone();
    let waiting = tokio::spawn(async move { waiter.mutex("taken").unwrap().lock().await.unwrap() });
    until("it waits", || async { store.admin.waiting().await == 1 }).await;
    let free = locker.mutex("free").unwrap().try_lock().await.unwrap().expect("nobody has it");
    free.release().await.unwrap();
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    let guard = timeout(SOON, waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

async fn c8_a_late_waiter_queues_behind_the_others(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let other = store.another().await;
    let mut first = other.claim(spec_for("a", TTL)).unwrap();
    let mut second = other.claim(spec_for("a", TTL)).unwrap();
    let begun = store.admin.status("Com_begin").await;
    let killed = store.admin.status("Com_kill").await;
    busy(first.attempt(Wait::Block(Duration::from_millis(20))).await);
    // A busy server may read the query after that, unless the client has asked it to end the
    // connection.
    let is_read = async || {
        store.admin.status("Com_begin").await > begun
            || store.admin.status("Com_kill").await > killed
    };
    until("its query is there", is_read).await;
    until("its query is gone", || async { store.admin.waiting().await == 0 }).await;
    let begun = store.admin.status("Com_begin").await;
    // This answer comes at once, without a request to the server. The query of the first claim is
    // gone before that.
    let answer = timeout(SOON / 2, second.attempt(Wait::Block(SOON))).await.expect("it waits");
    busy(answer);
    assert_eq!(store.admin.status("Com_begin").await, begun, "it asks, and stands behind nobody");
    // A claim that does not wait asks the server, even if others wait.
    let mut third = other.claim(spec_for("a", TTL)).unwrap();
    given_up(holder.release()).await;
    granted(third.attempt(Wait::No).await);
    given_up(third.release()).await;
    given_up(first.release()).await;
    granted(second.attempt(Wait::Block(SOON)).await);
}
