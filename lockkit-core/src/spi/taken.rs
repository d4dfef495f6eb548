//! Which ways to hold a lock go together.

use super::Mode;

/// How much of a lock is taken: the rule by which a store that keeps its own list of holders grants
/// one more (C1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nobody has it.
    Nothing,
    /// Only by shared holders.
    Shared,
    /// So many of the permits.
    Permits(u32),
    /// Nobody else can have it.
    All,
}

impl Taken {
    /// By all of these; [`All`](Self::All) if they don't go together.
    pub fn by(modes: impl IntoIterator<Item = Mode>) -> Self {
        modes.into_iter().try_fold(Self::Nothing, Self::with).unwrap_or(Self::All)
    }

    /// What is taken once one more has it in `mode`; `None` if it can't be granted beside the
    /// others.
    #[must_use]
    pub fn with(self, mode: Mode) -> Option<Self> {
        match (self, mode) {
            (Self::Nothing, Mode::Exclusive) => Some(Self::All),
            (Self::Nothing | Self::Shared, Mode::Shared) => Some(Self::Shared),
            (Self::Nothing, Mode::Permits { count, .. }) => Some(Self::Permits(count.get())),
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
    fn c1_only_what_goes_together_is_granted() {
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
                Taken::by(held.iter().copied()).with(wanted).is_some(),
                goes,
                "{wanted:?} beside {held:?}"
            );
        }
    }

    #[test]
    fn c1_what_does_not_go_together_leaves_nothing() {
        assert_eq!(Taken::by([Mode::Exclusive, Mode::Shared]), Taken::All);
        let huge = Mode::Permits {
            count: u32::MAX.try_into().unwrap(),
            limit: u32::MAX.try_into().unwrap(),
        };
        assert_eq!(Taken::by([huge]).with(huge), None);
    }
}
