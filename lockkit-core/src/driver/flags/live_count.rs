//! Counts the claims that live, for the shutdown that waits for the last of them.

use std::sync::atomic::Ordering::SeqCst;

use crate::sync::{AtomicBool, AtomicUsize};

/// Either a new claim sees the shutdown, or the task that began the shutdown sees the claim.
#[derive(Debug)]
pub(in crate::driver) struct LiveCount {
    live: AtomicUsize,
    draining: AtomicBool,
}

impl LiveCount {
    pub(in crate::driver) fn new() -> Self {
        Self { live: AtomicUsize::new(0), draining: AtomicBool::new(false) }
    }

    pub(in crate::driver) fn born(&self) {
        self.live.fetch_add(1, SeqCst);
    }

    /// Returns true for the last claim, if a shutdown waits for it.
    pub(in crate::driver) fn died(&self) -> bool {
        self.live.fetch_sub(1, SeqCst) == 1 && self.is_draining()
    }

    pub(in crate::driver) fn live(&self) -> usize {
        self.live.load(SeqCst)
    }

    pub(in crate::driver) fn drain(&self) {
        self.draining.store(true, SeqCst);
    }

    pub(in crate::driver) fn is_draining(&self) -> bool {
        self.draining.load(SeqCst)
    }
}

#[cfg(all(test, lockkit_loom))]
mod models {
    use loom::{
        sync::{Arc, Notify},
        thread,
    };

    use super::*;
    use crate::sync::check;

    #[test]
    fn loom_c6_a_claim_sees_the_shutdown_or_the_shutdown_sees_the_claim() {
        check(|| {
            let live_count = Arc::new(LiveCount::new());
            let claim = {
                let live_count = Arc::clone(&live_count);
                thread::spawn(move || {
                    live_count.born();
                    live_count.is_draining()
                })
            };
            live_count.drain();
            let seen = live_count.live() > 0;
            assert!(
                claim.join().unwrap() || seen,
                "a lock is taken beside a shutdown that is done"
            );
        });
    }

    /// loom reports a shutdown that is never woken.
    #[test]
    fn loom_c7_the_shutdown_hears_of_the_last_claim() {
        check(|| {
            let shared = Arc::new((LiveCount::new(), Notify::new()));
            let claims = [(); 2].map(|()| {
                shared.0.born();
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if shared.0.died() {
                        shared.1.notify();
                    }
                })
            });
            let (live_count, quiet) = &*shared;
            live_count.drain();
            while live_count.live() > 0 {
                quiet.wait();
            }
            assert_eq!(live_count.live(), 0);
            claims.into_iter().for_each(|claim| claim.join().unwrap());
        });
    }
}
