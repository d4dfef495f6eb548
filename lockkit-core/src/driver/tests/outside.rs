//! Tests of callers that are in no runtime, on the real clock.

use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::runtime::Builder;

use super::{
    manual, ms,
    runtimes::{single, threads, world},
    secs,
};
use crate::{
    error::ErrorKind,
    fake::{KINDS, Kind},
    spi::LossReason,
};

#[test]
fn c13_without_a_runtime_lock_is_an_error() {
    let world = world(Kind::Ttl);
    let error = world.mutex("a").lock().now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime);
    let error = world.locker.shutdown().now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime);
}

#[test]
fn c13_without_timers_lock_is_an_error() {
    let world = world(Kind::Ttl);
    let bare = Builder::new_current_thread().build().unwrap();
    let error = bare.block_on(world.mutex("a").lock()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime);
    assert!(error.to_string().contains("enable_time"), "{error}");
    single().block_on(async {
        drop(world.mutex("a").lock().await.unwrap());
        world.clean("").await;
    });
}

/// The background task runs on another runtime.
#[test]
fn c8_c13_a_bounded_wait_without_timers_is_an_error_and_hangs_never() {
    for ended in [false, true] {
        let world = world(Kind::Ttl);
        world.store.set_latency(ms(0));
        let home = threads();
        let guard = home.block_on(world.mutex("a").lock()).unwrap();
        let mutex = world.mutex("a");
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let other =
                if ended { single() } else { Builder::new_current_thread().build().unwrap() };
            let handle = other.handle().clone();
            if ended {
                // The runtime had timers when it was used last.
                other.block_on(async { assert!(mutex.try_lock().await.unwrap().is_none()) });
            }
            let other = (!ended).then_some(other);
            let outcome = match &other {
                Some(bare) => bare.block_on(mutex.lock_timeout(ms(100))),
                None => handle.block_on(mutex.lock_timeout(ms(100))),
            };
            drop(mutex);
            tell.send(outcome.map(drop)).unwrap();
        });
        let error =
            told.recv_timeout(std::time::Duration::from_secs(60)).expect("it hangs").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoRuntime, "{error}");
        drop(guard);
        home.block_on(world.clean(&format!("ended: {ended}")));
    }
}

#[test]
fn c7_a_guard_dropped_outside_a_runtime_is_released_inside() {
    let world = world(Kind::Ttl);
    let runtime = threads();
    drop(runtime.block_on(world.mutex("a").lock()).unwrap());
    runtime.block_on(world.clean(""));
}

#[test]
fn c7_outside_a_runtime_the_keeper_releases_and_answers() {
    for kind in KINDS {
        let world = world(kind);
        let runtime = threads();
        let guard = runtime.block_on(world.mutex("a").lock()).unwrap();
        let released = block_on(guard.release());
        assert!(released.is_ok(), "{kind:?} {released:?}");
        let guard = runtime.block_on(world.mutex("a").lock()).unwrap();
        world.store.evict_all();
        let told = block_on(guard.release()).unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Lost, "{kind:?}");
        runtime.block_on(world.clean(&format!("{kind:?}")));
    }
}

#[test]
fn c3_outside_a_runtime_the_loss_signal_fires_and_renewal_is_an_error() {
    let world = world(Kind::Ttl);
    let runtime = threads();
    let guard = runtime.block_on(world.mutex_with("a", manual().with_ttl(secs(3))).lock()).unwrap();
    assert_eq!(guard.renew().now_or_never().unwrap().unwrap_err().kind(), ErrorKind::NoRuntime);
    assert_eq!(block_on(guard.lost().wait()), LossReason::Expired);
    drop(guard);
    runtime.block_on(world.clean(""));
}

#[test]
fn c7_with_neither_runtime_nor_keeper_a_release_is_an_unknown_outcome() {
    let world = world(Kind::Ttl);
    let runtime = threads();
    let guard = runtime.block_on(world.mutex("a").lock()).unwrap();
    runtime.shutdown_timeout(secs(30));
    let error = guard.release().now_or_never().expect("an answer at once").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime);
    assert!(error.is_outcome_unknown());
    // The next background task adopts the release.
    single().block_on(async {
        world.mutex("b").lock().await.unwrap().release().await.unwrap();
        world.clean("").await;
    });
}

#[test]
fn a_keeper_that_ends_answers_its_waiting_callers() {
    let world = world(Kind::Ttl);
    let runtime = single(); // not driven from here on
    let guard = runtime.block_on(world.mutex("a").lock()).unwrap();
    let mut releasing = Box::pin(guard.release());
    assert!(releasing.as_mut().now_or_never().is_none(), "in the keeper's hands");
    drop(runtime);
    let error = releasing.as_mut().now_or_never().expect("an answer").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime);
    drop(releasing);
    single().block_on(async {
        world.mutex("b").lock().await.unwrap().release().await.unwrap();
        world.clean("").await;
    });
}

/// Blocks this thread, which is in no runtime, until the future is done.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    use std::task::{Context, Poll, Wake};

    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}
