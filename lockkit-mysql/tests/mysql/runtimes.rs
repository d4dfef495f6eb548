//! Lockers that are used in several runtimes, one of which nobody drives any more.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use lockkit_core::spi::{Pulse, Released, Wait};
use lockkit_fixture::SqlFlavor;
use tokio::{
    runtime::{Builder, Runtime},
    task::spawn_blocking,
};

use crate::support::*;

on_both!(
    c8_a_runtime_that_stands_still_holds_up_no_waiter_of_another,
    c10_a_runtime_that_stands_still_holds_up_no_renewal_of_another,
);

/// Runs only inside `block_on`.
fn idle_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Gives it a start, and leaves it there.
async fn begin<F: Future>(mut future: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Catches waiters that rely on a task of another runtime.
async fn c8_a_runtime_that_stands_still_holds_up_no_waiter_of_another(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (holder, locker) = (bed.locker("").await, bed.connect("").await);
    let locker = with_ttl(locker, Duration::from_secs(3));
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let (stopped, lock) = (idle_runtime(), locker.mutex("a").unwrap());
    let first = Box::pin(async move { lock.lock().await.map(drop) });
    let (stopped, first) = spawn_blocking(move || {
        let mut first = first;
        let waited = stopped.block_on(async { tokio::time::timeout(SLACK, first.as_mut()).await });
        assert!(waited.is_err());
        (stopped, first)
    })
    .await
    .unwrap();
    let lock = locker.mutex("a").unwrap();
    let second = tokio::spawn(async move { lock.lock().await.unwrap() });
    tokio::time::sleep(SLACK).await;
    guard.release().await.unwrap();
    let guard = within(Duration::from_secs(6), "a waiter that is polled", second).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    drop(first);
    spawn_blocking(move || drop(stopped)).await.unwrap();
}

/// Catches a request for several that only one of them can drive.
async fn c10_a_runtime_that_stands_still_holds_up_no_renewal_of_another(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let (mut one, mut other) = (claim(&backend, "a"), claim(&backend, "b"));
    granted(one.attempt(Wait::No).await);
    granted(other.attempt(Wait::No).await);
    let stopped = idle_runtime();
    let mut renewal = Box::pin(async move { one.keep_alive().await });
    let (stopped, renewal) = spawn_blocking(move || {
        stopped.block_on(begin(renewal.as_mut()));
        (stopped, renewal)
    })
    .await
    .unwrap();
    let pulse = within(SOON, "a renewal", other.keep_alive()).await.unwrap();
    assert!(matches!(pulse, Pulse::Alive(_)), "{pulse:?}");
    drop(renewal);
    spawn_blocking(move || drop(stopped)).await.unwrap();
}
