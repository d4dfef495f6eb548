//! Chance by a seed.

use std::time::Duration;

/// SplitMix64, one stream per task.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64, stream: usize) -> Self {
        let mut streams = Self(seed);
        for _ in 0..stream {
            streams.next();
        }
        Self(streams.next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Up to `most` microseconds.
    pub(crate) fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most + 1))
    }
}
