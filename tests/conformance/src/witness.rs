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
        let stays = self.verify_tokens();
        for pair in stays.windows(2) {
            let [earlier, later] = pair else { continue };
            assert!(
                earlier.until <= later.from,
                "C1 or C4: the holder of token {} was in for {:?} after token {} was granted",
                earlier.token,
                earlier.until - later.from,
                later.token
            );
        }
        stays.len()
    }

    /// Panics if two stays share a token: what is left of [`verify`](Self::verify) while the store may free early.
    /// Returns the stays by their tokens.
    pub(crate) fn verify_tokens(&self) -> Vec<Stay> {
        let mut stays = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stays.sort_by_key(|stay| stay.token);
        for pair in stays.windows(2) {
            let [earlier, later] = pair else { continue };
            assert!(earlier.token < later.token, "C4: two grants share token {}", later.token);
        }
        stays
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn witness(stays: &[(u64, u64, u64)]) -> Witness {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let witness = Witness::default();
        for &(token, from, until) in stays {
            witness.record(Stay { token: FencingToken::new(token), from: at(from), until: at(until) });
        }
        witness
    }

    #[test]
    fn stays_that_follow_each_other_are_fine_in_any_order_of_record() {
        assert_eq!(witness(&[(9, 30, 40), (3, 0, 10), (5, 10, 30)]).verify(), 3);
    }

    #[test]
    #[should_panic(expected = "C1")]
    fn an_overlap_is_seen() {
        witness(&[(3, 0, 10), (5, 9, 30)]).verify();
    }

    #[test]
    #[should_panic(expected = "C4: two grants share")]
    fn a_shared_token_is_seen() {
        witness(&[(3, 0, 10), (3, 20, 30)]).verify();
    }

    #[test]
    #[should_panic(expected = "C1")]
    fn a_token_that_falls_is_seen() {
        witness(&[(5, 0, 10), (3, 20, 30)]).verify();
    }
}
