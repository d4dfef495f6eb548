//! Pauses between attempts: doubling, jittered.

use std::time::Duration;

use crate::{chance::between, options::MAX_TTL, spi::Poll};

/// The pause before the next attempt of a waiter that nothing wakes.
#[derive(Debug)]
pub(crate) struct Backoff {
    pause: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(poll: Poll) -> Self {
        // Beyond that nobody sees a difference, and a longer pause could not be jittered.
        let max = poll.max.min(MAX_TTL);
        Self { pause: poll.min.min(max), max }
    }

    /// The present pause, ±25 %, so that waiters that started together drift apart.
    pub(crate) fn jittered(&self) -> Duration {
        between(self.pause, 0.75, 1.25)
    }

    pub(crate) fn grow(&mut self) {
        self.pause = (self.pause * 2).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_and_are_jittered_by_a_quarter() {
        let (min, max) = (Duration::from_millis(10), Duration::from_millis(35));
        let mut backoff = Backoff::new(Poll { min, max });
        for expected in [10_000, 20_000, 35_000, 35_000] {
            let drawn: Vec<_> = (0..100).map(|_| backoff.jittered().as_micros()).collect();
            assert!(drawn.iter().all(|us| (expected * 3 / 4..=expected * 5 / 4).contains(us)), "{drawn:?}");
            assert!(drawn.iter().any(|us| *us != drawn[0]), "no jitter");
            backoff.grow();
        }
    }
}
