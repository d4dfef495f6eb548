//! Reads the clock that all processes of a machine share.

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

/// The common instant as an instant of this process, even if it has passed. A late process must not
/// shift the time that all processes measure.
pub(crate) fn instant(at: u64) -> Instant {
    let now = Instant::now();
    let common = nanos();
    match at.checked_sub(common) {
        Some(ahead) => now + Duration::from_nanos(ahead),
        // An instant before the start of this machine cannot be expressed.
        None => now.checked_sub(Duration::from_nanos(common - at)).unwrap_or(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_has_passed_stays_in_the_past() {
        let ago = instant(nanos() - 500_000_000).elapsed();
        assert!((Duration::from_millis(490)..Duration::from_secs(60)).contains(&ago), "{ago:?}");
        assert!(instant(nanos() + 60_000_000_000) > Instant::now() + Duration::from_secs(50));
    }
}
