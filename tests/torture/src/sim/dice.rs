//! Random numbers that come from the seed.

use std::{ops::RangeInclusive, sync::Mutex, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::Xoshiro256PlusPlus};

use super::log::lock;

/// One stream of random numbers. Each task has its own, so that its choices do not depend on the
/// other tasks.
#[derive(Debug)]
pub(super) struct Dice(Mutex<Xoshiro256PlusPlus>);

impl Dice {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let seed = seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(Mutex::new(Xoshiro256PlusPlus::seed_from_u64(seed)))
    }

    /// True in this many of a thousand throws.
    pub(super) fn chance(&self, per_mille: u32) -> bool {
        per_mille > 0 && lock(&self.0).random_range(0..1_000) < per_mille
    }

    pub(super) fn number(&self, range: RangeInclusive<u64>) -> u64 {
        lock(&self.0).random_range(range)
    }

    pub(super) fn small(&self, range: RangeInclusive<u32>) -> u32 {
        lock(&self.0).random_range(range)
    }

    pub(super) fn ms(&self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    pub(super) fn up_to(&self, longest: Duration) -> Duration {
        self.ms(0..=u64::try_from(longest.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn pick<T: Copy>(&self, among: &[T]) -> T {
        among[lock(&self.0).random_range(0..among.len())]
    }
}
