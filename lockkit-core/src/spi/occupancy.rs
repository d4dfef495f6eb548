//! Decides which modes of a lock can be held together.

use super::Mode;

/// How much of a lock is taken. A store that keeps its own list of holders uses this rule for each
/// new grant (C1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occupancy {
    /// No claim has the lock.
    Free,
    /// Only shared holders have it.
    Shared,
    /// This number of permits is taken.
    Permits(u32),
    /// No other claim can get it.
    Full,
}

impl Occupancy {
    /// The occupancy by holders in these modes; [`Full`](Self::Full) if the modes exclude each
    /// other.
    pub fn of(modes: impl IntoIterator<Item = Mode>) -> Self {
        modes.into_iter().try_fold(Self::Free, Self::with).unwrap_or(Self::Full)
    }

    /// The occupancy after one more grant in `mode`; `None` if the present holders exclude that.
    #[must_use]
    pub fn with(self, mode: Mode) -> Option<Self> {
        match (self, mode) {
            (Self::Free, Mode::Exclusive) => Some(Self::Full),
            (Self::Free | Self::Shared, Mode::Shared) => Some(Self::Shared),
            (Self::Free, Mode::Permits { count, .. }) => Some(Self::Permits(count.get())),
            (Self::Permits(used), Mode::Permits { count, limit }) => {
                let used = used.checked_add(count.get())?;
                (used <= limit.get()).then_some(Self::Permits(used))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(count: u32) -> Mode {
        Mode::Permits { count: count.try_into().unwrap(), limit: 3.try_into().unwrap() }
    }

    #[test]
    fn c1_only_compatible_claims_are_granted() {
        let alone = Mode::Exclusive;
        let shared = Mode::Shared;
        for (held, wanted, goes) in [
            (&[][..], alone, true),
            (&[alone], alone, false),
            (&[alone], shared, false),
            (&[alone], permits(1), false),
            (&[shared, shared], shared, true),
            (&[shared], alone, false),
            (&[shared], permits(1), false),
            (&[permits(1), permits(1)], permits(1), true),
            (&[permits(1), permits(1)], permits(2), false),
            (&[permits(1)], alone, false),
            (&[permits(1)], shared, false),
        ] {
            assert_eq!(
                Occupancy::of(held.iter().copied()).with(wanted).is_some(),
                goes,
                "{wanted:?} beside {held:?}"
            );
        }
    }

    #[test]
    fn c1_incompatible_claims_leave_nothing() {
        assert_eq!(Occupancy::of([Mode::Exclusive, Mode::Shared]), Occupancy::Full);
        let huge = Mode::Permits {
            count: u32::MAX.try_into().unwrap(),
            limit: u32::MAX.try_into().unwrap(),
        };
        assert_eq!(Occupancy::of([huge]).with(huge), None);
    }
}
