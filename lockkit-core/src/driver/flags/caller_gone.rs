//! Tells an attempt in flight that its caller dropped the call.

use std::{
    sync::atomic::Ordering::SeqCst,
    task::{Context, Poll},
};

use crate::sync::{AtomicBool, AtomicWaker};

/// Set when the caller of an attempt in flight is gone. The attempt need not wait inside the store
/// then.
#[derive(Debug)]
pub(in crate::driver) struct CallerGone {
    gone: AtomicBool,
    attempting: AtomicWaker,
}

impl CallerGone {
    pub(in crate::driver) fn new() -> Self {
        Self { gone: AtomicBool::new(false), attempting: AtomicWaker::new() }
    }

    pub(in crate::driver) fn set(&self) {
        self.gone.store(true, SeqCst);
        self.attempting.wake();
    }

    /// Checks the flag only after the waker is in its place, so that a later `set` wakes the
    /// attempt.
    pub(in crate::driver) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        #[cfg(not(all(test, lockkit_loom)))]
        self.attempting.register(cx.waker());
        #[cfg(all(test, lockkit_loom))]
        self.attempting.register_by_ref(cx.waker());
        if self.gone.load(SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(all(test, lockkit_loom))]
mod models {
    use std::future::poll_fn;

    use loom::{future::block_on, sync::Arc, thread};

    use super::*;
    use crate::sync::check;

    /// loom reports a task that sleeps and is never woken.
    #[test]
    fn loom_c6_an_attempt_hears_that_its_caller_was_cancelled() {
        check(|| {
            let abandoned = Arc::new(CallerGone::new());
            let caller = {
                let abandoned = Arc::clone(&abandoned);
                thread::spawn(move || abandoned.set())
            };
            block_on(poll_fn(|cx| abandoned.poll(cx)));
            caller.join().unwrap();
        });
    }
}
