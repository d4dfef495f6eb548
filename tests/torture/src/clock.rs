//! The clock that all processes of a machine share, and that leases count on.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the start of the machine, including the time in suspend. The clock is the same
/// for all processes.
#[must_use]
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
