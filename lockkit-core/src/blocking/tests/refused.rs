//! Tests of calls that must not block, and of a thread that can't start.

use std::{error::Error as _, future::ready, sync::Arc, thread};

use tokio::runtime::Builder;

use super::{MINUTE, ms, until, world};
use crate::{
    blocking::{LockGuard, Locker, background::Background},
    error::{Error, ErrorKind},
    fake::{Fake, Kind, Store},
};

/// Makes each call that blocks, and returns the errors.
fn errors(locker: &Locker, guard: &LockGuard) -> Vec<Error> {
    let mutex = locker.mutex("b").unwrap();
    vec![
        mutex.lock().unwrap_err(),
        mutex.try_lock().unwrap_err(),
        mutex.lock_timeout(ms(1)).unwrap_err(),
        mutex.scope(|_| ()).unwrap_err(),
        locker.block_on(ready(Ok(()))).unwrap_err(),
        locker.shutdown().unwrap_err(),
        guard.renew().unwrap_err(),
        guard.extend(MINUTE).unwrap_err(),
        guard.lost().wait_timeout(ms(1)).unwrap_err(),
    ]
}

/// Catches a call that panics, and a call that waits for the thread that it blocks.
#[test]
fn c13_a_blocking_call_inside_a_runtime_is_an_error_and_never_a_deadlock() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (store, locker) = world(Kind::Ttl);
    let guard = locker.mutex("a").unwrap().lock().unwrap();
    runtime.block_on(async {
        for error in errors(&locker, &guard) {
            assert_eq!(error.kind(), ErrorKind::InsideRuntime, "{error}");
            assert!(error.to_string().contains("async interface"), "{error}");
        }
        let error = Locker::new(crate::Locker::memory()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsideRuntime, "{error}");
        assert!(guard.is_held(), "a look does not block");
        let error = guard.release().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsideRuntime, "{error}");
        assert!(error.is_outcome_unknown(), "the background thread releases it");
    });
    until("the lock is free", || store.holder("a").is_none());
    let mutex = locker.mutex("a").unwrap();
    let blocked = runtime.spawn_blocking(move || mutex.lock().unwrap_err().kind());
    assert_eq!(runtime.block_on(blocked).unwrap(), ErrorKind::InsideRuntime);
    let guard = locker.mutex("a").unwrap().lock().unwrap();
    // The drop of the last handle is allowed everywhere.
    runtime.block_on(async move { drop((guard, locker)) });
    until("the lock is free", || store.holder("a").is_none());
}

/// A fork has the memory of its parent, and another process id. Catches a call that waits for a
/// thread that the fork does not have.
#[test]
fn c13_in_a_fork_calls_are_errors_and_no_lock_is_held() {
    let (_store, locker) = world(Kind::Ttl);
    let background = locker.background.forked();
    let forked = Locker { inner: locker.inner.clone(), background: Arc::clone(&background) };
    let held = locker.block_on(locker.as_async().mutex("a").unwrap().lock()).unwrap();
    assert!(held.is_held());
    let guard = LockGuard::new(held, &background);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    for error in errors(&forked, &guard) {
        assert_eq!(error.kind(), ErrorKind::NoRuntime, "{error}");
        assert!(error.to_string().contains("fork"), "{error}");
    }
    let error = guard.release().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime, "{error}");
    assert!(error.is_outcome_unknown(), "the parent process has the lock");
    locker.shutdown().unwrap();
}

#[test]
fn c13_a_background_thread_that_cannot_start_is_an_error() {
    let store = Store::new(0);
    let fake = Arc::new(Fake::new(Arc::clone(&store), Kind::Ttl));
    let locker = crate::Locker::builder(fake).build();
    // No address space has room for this stack.
    let immense = thread::Builder::new().stack_size(usize::MAX / 8 + 1);
    let error = Background::start(immense, ready(Ok(locker))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime, "{error}");
    assert!(error.to_string().contains("could not start the background thread"), "{error}");
    assert!(error.source().is_some());
    assert_eq!(Arc::strong_count(&store), 1, "the locker is gone");
}
