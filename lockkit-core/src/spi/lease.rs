//! Computes until when a lease counts in this process (C3).

use std::time::Duration;

use crate::clock::Tick;

/// How long a grant lasts without another renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// For this long, counted from just before the proving request was sent.
    For(Duration),
    /// For `lasts`, counted from `at`, when the last proving request was sent.
    Proven {
        /// When the proving request was sent.
        at: Tick,
        /// How long the grant lasts from then.
        lasts: Duration,
    },
    /// For as long as the store's session or process lives. The backend wakes the claim when that
    /// ends.
    Session,
}

impl Lease {
    /// The local deadline of a lease that was proven by a request sent at `asked`. It is 1 % and 2
    /// ms earlier than the end of the lease, because two clocks differ and timers are late.
    ///
    /// The core uses this deadline. A backend needs it only if it has other backends as members.
    #[must_use]
    pub fn deadline(self, asked: Tick) -> Tick {
        match self {
            Self::For(lasts) => asked.after(less_drift(lasts)),
            Self::Proven { at, lasts } => at.after(less_drift(lasts)),
            Self::Session => Tick::NEVER,
        }
    }
}

/// Each of the two clocks may be off by 0.5 %, and the timers by 2 ms.
fn less_drift(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}

/// The lease for which [`less_drift`] leaves at least `left`. It is in whole milliseconds, because
/// stores count in them.
pub(crate) fn with_drift(left: Duration) -> Duration {
    let lease = (left + Duration::from_millis(2)) * 100 / 99;
    Duration::from_millis(u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c3_a_lease_is_counted_less_one_percent_and_two_milliseconds() {
        let asked = Tick::from_nanos(0);
        let counts = |lease| asked.until(Lease::For(lease).deadline(asked));
        assert_eq!(counts(Duration::from_secs(30)), Duration::from_millis(29_698));
        assert_eq!(counts(Duration::from_millis(2)), Duration::ZERO);
    }

    #[test]
    fn c3_a_lease_with_drift_lasts_at_least_as_long_as_requested() {
        for left in [0, 1, 29_698, 86_400_000].map(Duration::from_millis) {
            let kept = less_drift(with_drift(left));
            assert!(kept >= left, "{kept:?} of {left:?}");
            assert!(kept <= left + Duration::from_millis(2), "{kept:?} of {left:?}");
        }
    }
}
