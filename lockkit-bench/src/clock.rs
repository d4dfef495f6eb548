//! The clock that all processes of a machine share.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::sample;

/// Nanoseconds since an instant that is the same for all processes.
pub(crate) fn nanos() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    sample::nanos(Duration::new(seconds, nanos))
}

/// The common instant as one of this process; one that has passed is now.
pub(crate) fn instant(at: u64) -> Instant {
    let (now, common) = (Instant::now(), nanos());
    now + Duration::from_nanos(at.saturating_sub(common))
}
