//! Lease arithmetic: until when a lease counts here (C3).

use std::time::Duration;

use crate::{clock::Tick, spi::Lease};

/// Until when a lease counts that was proven by a request sent at `asked`.
pub(crate) fn deadline_of(asked: Tick, lease: Lease) -> Tick {
    match lease {
        Lease::For(lasts) => asked.after(less_drift(lasts)),
        Lease::Proven { at, lasts } => at.after(less_drift(lasts)),
        Lease::Session => Tick::NEVER,
    }
}

/// Both clocks may be off by 0.5 %, and the timers by 2 ms.
fn less_drift(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}

/// The lease of which [`less_drift`] leaves so much, in whole milliseconds, as stores count.
pub(super) fn with_drift(left: Duration) -> Duration {
    let lease = (left + Duration::from_millis(2)) * 100 / 99;
    Duration::from_millis(u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c3_a_lease_is_counted_less_one_percent_and_two_milliseconds() {
        assert_eq!(less_drift(Duration::from_secs(30)), Duration::from_millis(29_698));
        assert_eq!(less_drift(Duration::from_millis(2)), Duration::ZERO);
    }

    #[test]
    fn c3_a_lease_with_drift_leaves_at_least_what_was_asked_for() {
        for left in [0, 1, 29_698, 86_400_000].map(Duration::from_millis) {
            let kept = less_drift(with_drift(left));
            assert!(kept >= left, "{kept:?} of {left:?}");
            assert!(kept <= left + Duration::from_millis(2), "{kept:?} of {left:?}");
        }
    }
}
