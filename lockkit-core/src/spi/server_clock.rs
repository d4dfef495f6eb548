//! Estimates the server's clock from its answers.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::clock::Tick;

/// An estimate of the server's wall clock, in µs, that is never behind that clock.
///
/// It takes each time that the server reports as the time at which the question was *sent*. So it
/// is ahead by one round trip at most.
#[derive(Debug)]
pub struct ServerClock {
    zero: Tick,
    /// Server time at `zero`.
    offset: AtomicI64,
}

impl ServerClock {
    /// Starts from the first answer: the server's time, and the instant when the question was sent.
    #[must_use]
    pub fn new(zero: Tick, server_time: i64) -> Self {
        Self { zero, offset: AtomicI64::new(server_time) }
    }

    /// The estimate for a local instant.
    #[must_use]
    pub fn at(&self, tick: Tick) -> i64 {
        self.offset.load(Ordering::Relaxed).saturating_add(self.local(tick))
    }

    /// Learns from an answer. A slow answer says little. It counts only if it shows that the
    /// estimate is wrong, because the server's clock was set, or runs faster than ours.
    pub fn observe(&self, sent: Tick, server_time: i64, received: Tick) {
        let highest = server_time.saturating_sub(self.local(sent));
        let lowest = server_time.saturating_sub(self.local(received));
        let offset = self.offset.load(Ordering::Relaxed);
        if !(lowest..=highest).contains(&offset) {
            self.offset.store(highest, Ordering::Relaxed);
        }
    }

    fn local(&self, tick: Tick) -> i64 {
        i64::try_from(self.zero.until(tick).as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::clock::Clock;

    use super::*;

    #[test]
    fn c5_the_estimate_is_tight_and_follows_a_clock_that_was_set() {
        let zero = Clock::Boot.now();
        let at = |ms| zero.after(Duration::from_millis(ms));
        let clock = ServerClock::new(zero, 1_000_000);
        assert_eq!(clock.at(at(5)), 1_005_000);
        // A slow answer agrees with the estimate: nothing changes.
        clock.observe(at(10), 1_500_000, at(900));
        assert_eq!(clock.at(at(5)), 1_005_000);
        // A faster answer makes the estimate tighter.
        clock.observe(at(10), 1_009_000, at(12));
        assert_eq!(clock.at(at(10)), 1_009_000);
        // The server's clock is set forward, and then back.
        clock.observe(at(20), 9_000_000, at(21));
        assert_eq!(clock.at(at(20)), 9_000_000);
        clock.observe(at(30), 2_000, at(31));
        assert_eq!(clock.at(at(30)), 2_000);
    }
}
