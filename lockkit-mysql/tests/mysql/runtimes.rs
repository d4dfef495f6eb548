//! Tests of lockers in several runtimes, one of which is not driven any more.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    thread,
};

use lockkit_core::spi::{Backend as _, RenewalOutcome, Wait};
use lockkit_fixture::SqlFlavor;
use lockkit_mysql::MySql;
use tokio::{
    runtime::{Builder, Runtime},
    sync::Barrier,
    task::spawn_blocking,
};

use crate::support::*;

on_both!(
    c8_a_blocked_runtime_delays_no_waiter_of_another,
    c10_a_blocked_runtime_delays_no_renewal_of_another,
    each_runtime_uses_its_own_connection_again,
    connections_of_ended_runtimes_are_closed_at_the_next_use,
    a_full_pool_makes_room_for_another_runtime,
    c6_a_close_waits_for_no_blocked_runtime,
);

/// A runtime that runs only inside `block_on`.
fn idle_runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Polls a future once, and leaves it there.
async fn begin<F: Future>(mut future: Pin<&mut F>) {
    poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// Catches waiters that rely on a task of another runtime.
async fn c8_a_blocked_runtime_delays_no_waiter_of_another(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let holder = bed.locker("").await;
    let locker = with_ttl(bed.connect("").await, SHORT);
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let stopped = idle_runtime();
    let lock = locker.mutex("a").unwrap();
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
    let guard = within(SOON, "a waiter that is polled", second).await.unwrap();
    guard.release().await.unwrap();
    drop(first);
    spawn_blocking(move || drop(stopped)).await.unwrap();
}

/// Catches a request for several renewals that only one of them can drive.
async fn c10_a_blocked_runtime_delays_no_renewal_of_another(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut one = claim(&backend, "a");
    let mut other = claim(&backend, "b");
    granted(one.attempt(Wait::No).await);
    granted(other.attempt(Wait::No).await);
    let stopped = idle_runtime();
    let mut renewal = Box::pin(async move { one.renew(None).await });
    let (stopped, renewal) = spawn_blocking(move || {
        stopped.block_on(begin(renewal.as_mut()));
        (stopped, renewal)
    })
    .await
    .unwrap();
    let outcome = within(SOON, "a renewal", other.renew(None)).await.unwrap();
    assert!(matches!(outcome, RenewalOutcome::Alive(_)), "{outcome:?}");
    drop(renewal);
    spawn_blocking(move || drop(stopped)).await.unwrap();
}

/// Waits for all other threads.
fn meet(runtime: &Runtime, turn: &Barrier) {
    runtime.block_on(within(SOON, "the others", turn.wait()));
}

/// One lock and its release, in a runtime of this thread.
fn pair(runtime: &Runtime, backend: &MySql, name: &str) {
    runtime.block_on(next_token(backend, name));
}

/// Catches a pool that gives a runtime the connection of another one, which can't be used there.
/// Such a pool opened a connection for each pair.
async fn each_runtime_uses_its_own_connection_again(flavor: SqlFlavor) {
    const RUNTIMES: u64 = 12;
    const ROUNDS: usize = 20;
    let bed = Bed::own(flavor, &[]);
    let backend = Arc::new(bed.connect(&format!("pool_size={RUNTIMES}&{QUIET}")).await);
    let mut admin = bed.admin().await;
    // Together with the connection of this runtime, there would be one too many.
    let opened = {
        let backend = Arc::clone(&backend);
        let before = admin.status("Connections").await;
        let turn = Arc::new(Barrier::new(usize::try_from(RUNTIMES).unwrap()));
        let working = (0..RUNTIMES).map(|number| {
            let backend = Arc::clone(&backend);
            let turn = Arc::clone(&turn);
            thread::spawn(move || {
                let runtime = idle_runtime();
                for _ in 0..ROUNDS {
                    meet(&runtime, &turn);
                    pair(&runtime, &backend, &number.to_string());
                }
                // No runtime ends before all are done.
                meet(&runtime, &turn);
            })
        });
        let working: Vec<_> = working.collect();
        let join = move || working.into_iter().for_each(|thread| thread.join().unwrap());
        within(SOON, "all pairs", spawn_blocking(join)).await.unwrap();
        admin.status("Connections").await - before
    };
    assert!(opened <= RUNTIMES, "{opened} connections for {RUNTIMES} runtimes");
}

/// Catches connections of ended runtimes that stay, and count against the pool, until other
/// connections need their room.
async fn connections_of_ended_runtimes_are_closed_at_the_next_use(flavor: SqlFlavor) {
    const RUNTIMES: u64 = 17;
    let bed = Bed::own(flavor, &[]);
    let backend = Arc::new(bed.connect(&format!("pool_size=40&{QUIET}")).await);
    let mut admin = bed.admin().await;
    next_token(&backend, "here").await;
    let connected = admin.status("Threads_connected").await;
    let all = Arc::clone(&backend);
    let turn = Arc::new(Barrier::new(usize::try_from(RUNTIMES).unwrap()));
    let work = move || {
        let working = (0..RUNTIMES).map(|number| {
            let backend = Arc::clone(&all);
            let turn = Arc::clone(&turn);
            thread::spawn(move || {
                let runtime = idle_runtime();
                pair(&runtime, &backend, &number.to_string());
                // No runtime has ended while another one asks for a connection.
                meet(&runtime, &turn);
            })
        });
        working.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    };
    within(SOON, "the runtimes", spawn_blocking(work)).await.unwrap();
    assert_eq!(
        admin.status("Threads_connected").await,
        connected + RUNTIMES,
        "nobody has seen yet that they ended"
    );
    let opened = admin.status("Connections").await;
    next_token(&backend, "here").await;
    until("theirs are closed", async || admin.status("Threads_connected").await == connected).await;
    assert_eq!(admin.status("Connections").await, opened, "that of this runtime is still there");
}

/// Catches a pool that grows with the number of runtimes, or that refuses a new one.
async fn a_full_pool_makes_room_for_another_runtime(flavor: SqlFlavor) {
    const SIZE: u64 = 3;
    const RUNTIMES: u64 = 8;
    let bed = Bed::own(flavor, &[]);
    let backend = Arc::new(bed.connect(&format!("pool_size={SIZE}&{QUIET}")).await);
    let mut admin = bed.admin().await;
    let connected = admin.status("Threads_connected").await - 1;
    let one_by_one = Arc::clone(&backend);
    let work = move || {
        let runtimes: Vec<_> = (0..RUNTIMES).map(|_| idle_runtime()).collect();
        for runtime in &runtimes {
            pair(runtime, &one_by_one, "a");
        }
        runtimes
    };
    let runtimes = within(SOON, "a pair in each runtime", spawn_blocking(work)).await.unwrap();
    until("no more are left than there may be", async || {
        admin.status("Threads_connected").await <= connected + SIZE
    })
    .await;
    // The connections that were used last are the ones that stay.
    let opened = admin.status("Connections").await;
    let again = Arc::clone(&backend);
    let work = move || {
        for runtime in runtimes.iter().skip(usize::try_from(RUNTIMES - SIZE).unwrap()) {
            pair(runtime, &again, "a");
        }
    };
    within(SOON, "a pair in each runtime that has a connection", spawn_blocking(work))
        .await
        .unwrap();
    assert_eq!(admin.status("Connections").await, opened);
}

/// Catches a close that waits for the cleanup task, or for a `KILL`, in a runtime that is not
/// driven. Such a close left all connections open.
async fn c6_a_close_waits_for_no_blocked_runtime(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let connected = 1;
    until("only this client is left", async || {
        admin.status("Threads_connected").await == connected
    })
    .await;
    let url = bed.url("");
    let open = move || {
        let stopped = idle_runtime();
        let backend = stopped.block_on(async {
            let backend = connect(&url).await.unwrap();
            let mut asks = claim(&backend, "a");
            begin(Box::pin(asks.attempt(Wait::No)).as_mut()).await;
            backend
        });
        (stopped, backend)
    };
    let (stopped, backend) = within(SOON, "the connection", spawn_blocking(open)).await.unwrap();
    next_token(&backend, "b").await;
    within(SOON, "the close", backend.close()).await.unwrap();
    spawn_blocking(move || drop(stopped)).await.unwrap();
    until("all are closed", async || admin.status("Threads_connected").await == connected).await;
    drop(backend);
}
