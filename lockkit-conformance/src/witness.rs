//! What was really held, and when, checked after the fact.
//!
//! A grant counts from *after* its call returned, to *before* the release was sent or before the last `is_held()` that
//! said true. So two intervals that overlap prove a violation, however late this process itself was scheduled.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use lockkit_core::{FencingToken, LockGuard};

#[derive(Debug, Default)]
pub(crate) struct Witness(Mutex<Vec<Stay>>);

/// One grant, as its holder saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) token: FencingToken,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Stay {
    pub(crate) fn begin(guard: &LockGuard) -> Self {
        let now = Instant::now();
        Self { token: guard.fencing_token(), from: now, until: now }
    }

    /// Prolongs the stay if the guard is still held; says whether it is.
    pub(crate) fn look(&mut self, guard: &LockGuard) -> bool {
        let now = Instant::now();
        let held = guard.is_held();
        if held {
            self.until = now;
        }
        held
    }
}

impl Witness {
    pub(crate) fn record(&self, stay: Stay) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(stay);
    }

    /// Panics if two exclusive stays overlapped, or if a later one had no larger token. Returns how many there were.
    pub(crate) fn verify(&self) -> usize {
        let mut stays = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stays.sort_by_key(|stay| stay.token);
        for pair in stays.windows(2) {
            let [earlier, later] = pair else { continue };
            assert!(earlier.token < later.token, "C4: two grants share token {}", later.token);
            assert!(
                earlier.until <= later.from,
                "C1: the holder of token {} was in for {:?} after token {} was granted",
                earlier.token,
                earlier.until - later.from,
                later.token
            );
        }
        stays.len()
    }
}
