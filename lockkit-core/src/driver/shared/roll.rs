//! The claims that live, and the shutdown that waits for the last of them.

use std::sync::atomic::Ordering::SeqCst;

use crate::sync::{AtomicBool, AtomicUsize};

/// Either a claim that was born sees the shutdown, or the one who began the shutdown sees the claim.
#[derive(Debug)]
pub(in crate::driver) struct Roll {
    live: AtomicUsize,
    draining: AtomicBool,
}

impl Roll {
    pub(in crate::driver) fn new() -> Self {
        Self { live: AtomicUsize::new(0), draining: AtomicBool::new(false) }
    }

    pub(in crate::driver) fn born(&self) {
        self.live.fetch_add(1, SeqCst);
    }

    /// True for the last one, if the shutdown waits for it.
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
            let roll = Arc::new(Roll::new());
            let claim = {
                let roll = Arc::clone(&roll);
                thread::spawn(move || {
                    roll.born();
                    roll.is_draining()
                })
            };
            roll.drain();
            let seen = roll.live() > 0;
            assert!(claim.join().unwrap() || seen, "a lock is taken beside a shutdown that is done");
        });
    }

    /// loom finds a shutdown that nobody wakes.
    #[test]
    fn loom_c7_the_shutdown_hears_of_the_last_claim() {
        check(|| {
            let shared = Arc::new((Roll::new(), Notify::new()));
            let claims = [(); 2].map(|()| {
                shared.0.born();
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if shared.0.died() {
                        shared.1.notify();
                    }
                })
            });
            let (roll, quiet) = &*shared;
            roll.drain();
            while roll.live() > 0 {
                quiet.wait();
            }
            assert_eq!(roll.live(), 0);
            claims.into_iter().for_each(|claim| claim.join().unwrap());
        });
    }
}
