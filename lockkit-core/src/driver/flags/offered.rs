//! A lock that was handed to a waiter that may not look any more.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use crate::sync::AtomicBool;

/// Set from the transfer of a lock until the first `take`. The waiter takes it, or the task that
/// gives the lock back.
#[derive(Debug)]
pub(in crate::driver) struct Offered(AtomicBool);

impl Offered {
    pub(in crate::driver) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(in crate::driver) fn leave(&self) {
        self.0.store(true, Release);
    }

    /// True for the first caller: it takes what was transferred, or gives it back. It sees all that
    /// was done before another thread found the lock [still there](Self::is_still_there).
    pub(in crate::driver) fn take(&self) -> bool {
        self.0.swap(false, AcqRel)
    }

    pub(in crate::driver) fn is_there(&self) -> bool {
        self.0.load(Acquire)
    }

    /// As [`is_there`](Self::is_there), but in one order with all calls of [`take`](Self::take). A
    /// plain load may be too old. Then each side would leave the report of a loss to the other one.
    pub(in crate::driver) fn is_still_there(&self) -> bool {
        self.0.fetch_or(false, AcqRel)
    }
}

#[cfg(all(test, lockkit_loom))]
mod models {
    use loom::{
        sync::{Arc, atomic::AtomicBool as Flag},
        thread,
    };

    use super::*;
    use crate::sync::check;

    #[test]
    fn loom_c7_exactly_one_call_takes_a_transfer() {
        check(|| {
            let unclaimed = Arc::new(Offered::new());
            // Before all others, because a real taker knows of the lock through a mutex.
            unclaimed.leave();
            let takers = [(); 2].map(|()| {
                let unclaimed = Arc::clone(&unclaimed);
                thread::spawn(move || unclaimed.take())
            });
            let looker = unclaimed.is_there() && unclaimed.take();
            let taken = takers.into_iter().map(|taker| usize::from(taker.join().unwrap()));
            assert_eq!(taken.sum::<usize>() + usize::from(looker), 1);
        });
    }

    /// `Held::lose` against `InLine::receive`.
    #[test]
    fn loom_c3_a_loss_during_the_transfer_is_reported_or_refused_to_the_caller() {
        check(|| {
            let shared = Arc::new((Offered::new(), Flag::new(false)));
            shared.0.leave();
            let loser = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (unclaimed, ended) = &*shared;
                    ended.store(true, Release);
                    !unclaimed.is_still_there()
                })
            };
            let (unclaimed, ended) = &*shared;
            let got_it = unclaimed.take() && !ended.load(Acquire);
            let told = loser.join().unwrap();
            assert!(told || !got_it, "the caller has a lock whose loss nobody tells");
        });
    }
}
