//! Tests of the end of lockers, guards and the background thread.

use std::{
    sync::{Arc, Weak},
    thread,
};

use tokio::runtime::Builder;

use super::{ms, until, until_clean, world};
use crate::{
    blocking::Locker,
    driver::agenda::Agenda,
    error::ErrorKind,
    fake::{KINDS, Kind, Store},
    options::{LockOptions, Renewal},
};

/// The thread and its tasks have this agenda for as long as they run.
fn agenda(locker: &Locker) -> Weak<Agenda> {
    Arc::downgrade(locker.inner.keeper.agenda())
}

fn until_ended(agenda: &Weak<Agenda>, store: &Arc<Store>) {
    until("the thread ends", || agenda.strong_count() == 0);
    until("no task has the store", || Arc::strong_count(store) == 1);
}

/// Catches a waiter that is not woken, and a shutdown that waits for it.
#[test]
fn a_shutdown_ends_the_waiting_calls_of_other_threads() {
    for kind in KINDS {
        let (store, locker) = world(kind);
        let mutex = locker.mutex("a").unwrap();
        let guard = mutex.lock().unwrap();
        let waiting = thread::spawn(move || mutex.lock().unwrap_err().kind());
        until("the thread waits", || store.live_claims() == 2);
        let closer = locker.clone();
        let closing = thread::spawn(move || closer.shutdown());
        assert_eq!(waiting.join().unwrap(), ErrorKind::Closed, "{kind:?}");
        guard.release().unwrap();
        closing.join().unwrap().unwrap();
        let error = locker.mutex("b").unwrap().lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{kind:?}");
        let agenda = agenda(&locker);
        drop(locker);
        until_ended(&agenda, &store);
    }
}

/// Catches a thread that ends with the locker, or before it has released the lock of the last
/// guard, and a thread that never ends.
#[test]
fn c7_c10_a_guard_outlives_its_locker_and_its_drop_releases() {
    for kind in KINDS {
        let (store, locker) = world(kind);
        let agenda = agenda(&locker);
        let guard = locker.mutex("a").unwrap().lock().unwrap();
        drop(locker);
        guard.renew().unwrap();
        assert!(guard.is_held(), "{kind:?}");
        store.set_latency(ms(50));
        drop(guard);
        until_ended(&agenda, &store);
        assert_eq!((store.holders(), store.live_claims()), (0, 0), "{kind:?}");
    }
}

#[test]
fn the_thread_of_an_unused_locker_ends() {
    let (store, locker) = world(Kind::Ttl);
    let agenda = agenda(&locker);
    let mutex = locker.mutex("a").unwrap();
    drop(locker);
    drop(mutex);
    until_ended(&agenda, &store);
}

#[test]
fn a_shutdown_waits_for_the_release_of_dropped_guards() {
    let (store, locker) = world(Kind::Ttl);
    store.set_latency(ms(50));
    for name in ["a", "b", "c"] {
        drop(locker.mutex(name).unwrap().lock().unwrap());
    }
    locker.shutdown().unwrap();
    assert_eq!(store.holders(), 0);
}

/// Catches a thread that ends with the last handle while a lock is held without a guard.
#[test]
fn a_leaked_lock_keeps_the_thread_until_its_lease_ends() {
    let (store, locker) = world(Kind::Ttl);
    let agenda = agenda(&locker);
    let options = LockOptions::new().with_ttl(ms(1_000)).with_renewal(Renewal::Manual);
    let guard = locker.mutex("a").unwrap().with_options(options).unwrap().lock().unwrap();
    let hold = guard.as_async().clone();
    let lost = guard.leak();
    drop((lost, locker));
    thread::sleep(ms(100));
    assert!(agenda.strong_count() > 1 || !hold.is_held(), "this view is one of them");
    until("the lease ends", || !hold.is_held());
    drop(hold);
    until_ended(&agenda, &store);
    until_clean(&store);
}

/// Catches a drop that closes the store of the async locker.
#[test]
fn an_async_locker_and_its_blocking_twin_exclude_each_other_and_end_apart() {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let locker = crate::Locker::memory();
    let twin = Locker::new(locker.clone()).unwrap();
    let mutex = locker.mutex("a").unwrap();
    let guard = twin.mutex("a").unwrap().lock().unwrap();
    assert!(runtime.block_on(mutex.try_lock()).unwrap().is_none());
    guard.release().unwrap();
    drop(twin);
    let guard = runtime.block_on(mutex.lock()).unwrap();
    let twin = Locker::new(locker.clone()).unwrap();
    assert!(twin.mutex("a").unwrap().try_lock().unwrap().is_none());
    drop(twin);
    runtime.block_on(guard.release()).unwrap();
    runtime.block_on(locker.shutdown()).unwrap();
}
