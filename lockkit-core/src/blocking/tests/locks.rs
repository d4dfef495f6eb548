//! Tests of locks of all kinds between threads.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use super::{MINUTE, ms, until, until_clean, world};
use crate::{
    Registry,
    blocking::{Hold, LockGuard, Locker, Lost},
    error::ErrorKind,
    fake::{KINDS, Kind, Op},
    options::LockOptions,
    spi::Noted,
};

/// Catches a guard that gives the lock back when the call returns.
#[test]
fn c1_c4_threads_exclude_each_other_and_their_tokens_rise() {
    let locker = Locker::new(crate::Locker::memory()).unwrap();
    let sum = AtomicU32::new(0);
    let tokens = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mutex = locker.mutex("a").unwrap();
                for _ in 0..25 {
                    let guard = mutex.lock().unwrap();
                    let before = sum.load(Relaxed);
                    thread::yield_now();
                    sum.store(before + 1, Relaxed);
                    tokens.lock().unwrap().push(guard.fencing_token());
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 200);
    assert!(tokens.into_inner().unwrap().windows(2).all(|pair| pair[0] < pair[1]));
    locker.shutdown().unwrap();
}

/// Catches a call that returns and leaves its place in the queue.
#[test]
fn c6_c8_a_bounded_wait_ends_at_its_bound_and_leaves_the_queue() {
    for kind in KINDS {
        let (store, locker) = world(kind);
        let mutex = locker.mutex("a").unwrap();
        let guard = mutex.lock().unwrap();
        assert!(mutex.try_lock().unwrap().is_none(), "{kind:?}");
        let start = Instant::now();
        let error = mutex.lock_timeout(ms(50)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{kind:?}");
        assert!(start.elapsed() >= ms(50), "{kind:?}");
        let options = LockOptions::new().with_wait(ms(20));
        let impatient = mutex.clone().with_options(options).unwrap();
        assert_eq!(impatient.lock().unwrap_err().kind(), ErrorKind::Timeout, "{kind:?}");
        guard.release().unwrap();
        until_clean(&store);
        assert!(mutex.try_lock().unwrap().is_some(), "{kind:?}");
        locker.shutdown().unwrap();
    }
}

#[test]
fn c8_a_waiting_thread_gets_the_lock_of_a_dropped_guard() {
    for kind in KINDS {
        let (_store, locker) = world(kind);
        let mutex = locker.mutex("a").unwrap();
        let guard = mutex.lock().unwrap();
        let token = guard.fencing_token();
        let waiting = thread::spawn(move || mutex.lock_timeout(MINUTE).unwrap());
        thread::sleep(ms(20));
        drop(guard);
        let guard = waiting.join().unwrap();
        assert!(guard.is_held() && guard.fencing_token() > token, "{kind:?}");
        guard.release().unwrap();
        locker.shutdown().unwrap();
    }
}

/// Catches a method that calls the twin of another one.
#[test]
fn readers_and_permits_are_held_together_and_exclude_the_others() {
    let locker = Locker::new(crate::Locker::memory()).unwrap();
    let timed_out = |call: crate::Result<LockGuard>| {
        assert_eq!(call.unwrap_err().kind(), ErrorKind::Timeout);
    };
    let prices = locker.rw_lock("prices").unwrap();
    let readers = [prices.read().unwrap(), prices.read_timeout(MINUTE).unwrap()];
    drop(prices.try_read().unwrap().unwrap());
    assert!(prices.try_write().unwrap().is_none());
    timed_out(prices.write_timeout(ms(20)));
    for reader in readers {
        reader.release().unwrap();
    }
    let writer = prices.write().unwrap();
    assert!(prices.try_read().unwrap().is_none());
    timed_out(prices.read_timeout(ms(20)));
    timed_out(prices.clone().with_options(LockOptions::new().with_wait(ms(20))).unwrap().read());
    writer.release().unwrap();

    let uploads = locker.semaphore("uploads", 3).unwrap();
    let two = uploads.acquire_many(2).unwrap();
    let third = uploads.acquire().unwrap();
    assert!(uploads.try_acquire().unwrap().is_none());
    timed_out(uploads.acquire_timeout(ms(20)));
    third.release().unwrap();
    assert!(uploads.try_acquire_many(2).unwrap().is_none());
    timed_out(uploads.acquire_many_timeout(2, ms(20)));
    two.release().unwrap();
    assert_eq!(uploads.acquire_many(4).unwrap_err().kind(), ErrorKind::InvalidOption);
    assert_eq!(uploads.limit(), 3);
    locker.shutdown().unwrap();
}

/// Catches a runtime that works only while a call blocks on it.
#[test]
fn c10_the_background_thread_renews_while_no_call_blocks() {
    let (store, locker) = world(Kind::Ttl);
    let options = LockOptions::new().with_ttl(ms(9_000));
    let locker = locker.with_defaults(options).unwrap();
    let guard = locker.mutex("a").unwrap().lock().unwrap();
    assert!(guard.remaining() <= ms(9_000));
    until("it is renewed", || store.count(Op::KeepAlive) > 0);
    guard.renew().unwrap();
    assert!(guard.extend(MINUTE).unwrap() > MINUTE / 2);
    assert!(guard.remaining() > MINUTE / 2);
    guard.release().unwrap();
    locker.shutdown().unwrap();
}

/// Catches a scope that runs its work inside the runtime, where no call may block.
#[test]
fn a_scope_may_block_again_and_releases_at_its_end() {
    let (store, locker) = world(Kind::Ttl);
    let mutex = locker.mutex("a").unwrap();
    let token = mutex.scope(|hold| {
        hold.renew().unwrap();
        locker.mutex("b").unwrap().lock().unwrap().release().unwrap();
        assert!(hold.is_held());
        hold.fencing_token()
    });
    assert!(store.holder("a").is_none());
    assert!(mutex.lock().unwrap().fencing_token() > token.unwrap());
    locker.shutdown().unwrap();
}

#[test]
fn c7_a_scope_that_panics_releases() {
    let (store, locker) = world(Kind::Ttl);
    let mutex = locker.mutex("a").unwrap();
    thread::spawn(move || mutex.scope::<()>(|_| panic!("as ordered"))).join().unwrap_err();
    until_clean(&store);
    locker.shutdown().unwrap();
}

#[test]
fn other_calls_of_the_async_interface_run_in_the_same_way() {
    let locker = Locker::open(async { Registry::new().connect("memory://?ttl=9s").await }).unwrap();
    assert_eq!(locker.as_async().defaults().ttl(), ms(9_000));
    let both = locker.block_on(locker.as_async().lock_all(["a", "b"])).unwrap();
    assert!(locker.mutex("a").unwrap().try_lock().unwrap().is_none());
    locker.block_on(both.release()).unwrap();
    let guard = locker.mutex("a").unwrap().lock().unwrap();
    let note = locker.block_on(locker.as_async().note(guard.name())).unwrap().next("done");
    assert_eq!(locker.block_on(guard.as_async().write_note(&note)).unwrap(), Noted::Written);
    guard.release().unwrap();
    locker.shutdown().unwrap();
    let error = Locker::open(async { Registry::new().connect("memory://?tll=9s").await });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::UnknownParameter);
}

#[test]
fn values_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<Locker>();
    shared::<crate::blocking::Mutex>();
    shared::<crate::blocking::RwLock>();
    shared::<crate::blocking::Semaphore>();
    shared::<LockGuard>();
    shared::<Hold>();
    shared::<Lost>();
}
