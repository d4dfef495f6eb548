//! The clock of deadlines: it counts the time in suspend, and all processes of a host share it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// An instant of `CLOCK_BOOTTIME`, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(pub(crate) u64);

impl BootTime {
    /// Later than any other instant.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        Self(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// The instant this much earlier; [`NEVER`](Self::NEVER) stays as it is.
    pub(crate) fn before(self, duration: Duration) -> Self {
        if self == Self::NEVER { self } else { Self(self.0.saturating_sub(nanos(duration))) }
    }

    /// The time that is left: zero if the instant has passed, [`Duration::MAX`] if it never comes.
    pub(crate) fn left(self) -> Duration {
        match self {
            Self::NEVER => Duration::MAX,
            Self(at) => Duration::from_nanos(at.saturating_sub(Self::now().0)),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
