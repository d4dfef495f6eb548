//! The clock that measures leases. Each locker has one, and its ticks never mix with another
//! clock's.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::OnceLock,
    task::Poll,
    time::Duration,
};

use tokio::{
    runtime::Handle,
    time::{self, Sleep},
};

use crate::chance;

/// An instant of a [`Clock`], in nanoseconds since that clock's own zero. Never compare the ticks
/// of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

impl Tick {
    /// Later than any instant.
    pub const NEVER: Self = Self(u64::MAX);

    pub(crate) const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    /// The instant `duration` after this one. It is [`NEVER`](Self::NEVER) if the clock cannot
    /// count that far.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }

    /// The last multiple of `step` that is not after this tick.
    pub(crate) fn rounded_down(self, step: Duration) -> Self {
        Self(self.0 - self.0 % saturating_nanos(step).max(1))
    }

    /// The time from here to `later`: zero if `later` is past, [`Duration::MAX`] if it is
    /// [`NEVER`](Self::NEVER).
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        if later == Self::NEVER {
            return Duration::MAX;
        }
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

/// The clock that measures leases. Timers always run on tokio's timer wheel; the clock decides
/// whether they are due.
///
/// A test that pauses tokio's clock gives this clock to both the store and the locker:
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use lockkit_core::{Clock, Locker, Memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let paused = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
/// paused.block_on(async {
///     let locker = Locker::builder(Arc::new(Memory::with_clock(Clock::Tokio))).clock(Clock::Tokio).build();
///     let guard = locker.mutex("orders/42")?.lock().await?;
///     tokio::time::sleep(Duration::from_secs(3600)).await; // an hour of renewals, in no time
///     assert!(guard.is_held());
///     guard.release().await?;
///     locker.shutdown().await
/// })?;
/// # Ok(())
/// # }
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Clock {
    /// Time since boot, including the time in suspend (`CLOCK_BOOTTIME` on Linux). A lease that
    /// ends while the machine sleeps is seen as ended after the resume.
    #[default]
    Boot,
    /// tokio's clock, for tests that pause it.
    Tokio,
}

/// The longest time until a watcher notices a resume from suspend.
const SLICE: Duration = Duration::from_secs(1);

impl Clock {
    /// Reads the clock.
    #[must_use]
    pub fn now(self) -> Tick {
        match self {
            Self::Boot => Tick(boot_nanos()),
            Self::Tokio => Tick(tokio_nanos()),
        }
    }

    /// Sleeps until `at` has passed on this clock. tokio's timer wheel does not advance in suspend,
    /// so this is late after a resume.
    pub(crate) async fn sleep_until(self, at: Tick) {
        self.sleep_in_slices(at, Duration::MAX).await;
    }

    /// As [`sleep_until`](Self::sleep_until), but notices a resume from suspend within a second.
    /// The price is one wake-up per second.
    pub(crate) async fn watch_until(self, at: Tick) {
        let slice = if self == Self::Boot { SLICE } else { Duration::MAX };
        self.sleep_in_slices(at, slice).await;
    }

    async fn sleep_in_slices(self, at: Tick, slice: Duration) {
        if at == Tick::NEVER {
            std::future::pending::<()>().await;
        }
        loop {
            let left = self.now().until(at);
            if left.is_zero() {
                return;
            }
            sleep(left.min(slice)).await;
        }
    }
}

/// As [`time::sleep`], for a future that may move to another runtime, because a tokio timer panics
/// once its own runtime has ended. Returns false if the timer's runtime is not the present one, or
/// has ended. The caller then sleeps again, with a timer of the present runtime. Where there is no
/// runtime, a later poll makes the timer.
pub(crate) async fn sleep(duration: Duration) -> bool {
    let here = || Handle::try_current().map(|runtime| runtime.id()).ok();
    let mut home = None;
    // Boxed, so that a call that needs no timer has a smaller future.
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        if timer.is_some() && here() != home {
            return Poll::Ready(false);
        }
        let is_new = timer.is_none();
        // Even a runtime that is present may have no timers, or may have ended.
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if is_new {
                home = here();
                home?;
                timer = Some(Box::pin(time::sleep(duration)));
            }
            timer.as_mut().map(|timer| timer.as_mut().poll(cx))
        }));
        match polled {
            Ok(Some(polled)) => polled.map(|()| true),
            Ok(None) => Poll::Pending,
            Err(_) if is_new => {
                timer = None;
                Poll::Pending
            }
            Err(_) => Poll::Ready(false),
        }
    })
    .await
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(unix)]
fn boot_nanos() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const BOOT: ClockId = ClockId::Boottime;
    // Counts suspend on macOS (mach_continuous_time). Other Unix systems have no better clock.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const BOOT: ClockId = ClockId::Monotonic;

    let now = clock_gettime(BOOT);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

#[cfg(not(unix))]
fn boot_nanos() -> u64 {
    static BASE: OnceLock<std::time::Instant> = OnceLock::new();
    saturating_nanos(BASE.get_or_init(std::time::Instant::now).elapsed())
}

/// tokio's instants have no zero, so this counts from the first instant that it saw. The count
/// starts high, because each paused runtime of a test process starts its own clock, and that may be
/// earlier.
fn tokio_nanos() -> u64 {
    const ZERO: u64 = 1 << 60;
    static BASE: OnceLock<time::Instant> = OnceLock::new();
    let now = time::Instant::now();
    let base = chance::zero().unwrap_or_else(|| *BASE.get_or_init(|| now));
    if now >= base {
        ZERO.saturating_add(saturating_nanos(now - base))
    } else {
        ZERO.saturating_sub(saturating_nanos(base - now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_advances_and_never_goes_back() {
        let a = Clock::Boot.now();
        let b = Clock::Boot.now();
        assert!(a <= b);
        assert!(a.after(Duration::from_secs(1)) > b);
    }

    #[test]
    fn never_is_never_reached() {
        assert_eq!(Clock::Boot.now().after(Duration::MAX), Tick::NEVER);
        assert_eq!(Clock::Boot.now().until(Tick::NEVER), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_obeys_a_paused_runtime() {
        let before = Clock::Tokio.now();
        time::advance(Duration::from_secs(5)).await;
        assert_eq!(before.until(Clock::Tokio.now()), Duration::from_secs(5));
    }
}
