//! Bounded waits for conditions. Lower bounds in cases are exact; upper bounds get the slack.

use std::{
    env,
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use lockkit_core::{Clock, Tick, spi::Lease};
use tokio::time::{sleep, timeout};

const VARIABLE: &str = "LOCKKIT_TEST_SLACK";
/// The default slack: a server may pause for seconds.
const DEFAULT: Duration = Duration::from_secs(6);
static OVERRIDE: Mutex<Option<Duration>> = Mutex::new(None);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The shortest sleep of the runtime. Cases use it between two looks at a condition, and as the
/// unit of small random delays.
pub(crate) const STEP: Duration = ms(1);
/// The largest difference by rounding in stores and between two clocks.
pub(crate) const ROUNDING: Duration = ms(5);
/// How long a storm of random calls or faults lasts. No assertion depends on it.
pub(crate) const STORM: Duration = ms(3_000);

/// How much later than promised an event may happen on a busy machine. The value is
/// `LOCKKIT_TEST_SLACK`, in milliseconds (`500` or `500ms`) or as a multiple of the default 6 s
/// (`3x`).
pub(crate) fn slack() -> Duration {
    static FROM_ENV: LazyLock<Duration> = LazyLock::new(|| match env::var(VARIABLE) {
        Ok(text) => {
            parse(&text).unwrap_or_else(|| panic!("{VARIABLE} is {text:?}, give 500ms or 3x"))
        }
        Err(_) => DEFAULT,
    });
    OVERRIDE.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(*FROM_ENV)
}

/// Overrides `LOCKKIT_TEST_SLACK` for the cases to come, or ends that. A test that expects a
/// failure need not wait for it as long.
pub fn override_slack(slack: Option<Duration>) {
    *OVERRIDE.lock().unwrap_or_else(PoisonError::into_inner) = slack;
}

/// The bound for work that only the machine delays. It is far shorter than the lease of
/// [`long`](crate::env::long): after that lease, even a faulty store would pass.
pub(crate) fn soon() -> Duration {
    slack() * 3
}

/// The bound for a store that pauses for seconds, now and then.
pub(crate) fn a_minute() -> Duration {
    slack() * 10
}

fn parse(text: &str) -> Option<Duration> {
    if let Some(factor) = text.strip_suffix('x') {
        let factor = factor.parse().ok().filter(|factor| (0.0..=1_000.0).contains(factor))?;
        return Some(DEFAULT.mul_f64(factor));
    }
    text.strip_suffix("ms").unwrap_or(text).parse().ok().map(Duration::from_millis)
}

/// Waits until `look` finds no fault any more. After `bound`, it panics with the last fault.
pub(crate) async fn eventually(bound: Duration, mut look: impl AsyncFnMut() -> Result<(), String>) {
    let start = Instant::now();
    while let Err(wrong) = look().await {
        assert!(start.elapsed() < bound, "after {bound:?}: {wrong}");
        sleep(LOOK_AGAIN).await;
    }
}

/// When a request was sent to a store; a lease counts from it.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    tick: Tick,
}

impl Asked {
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), tick: Clock::Boot.now() }
    }

    /// The holder's deadline, as the core counts it: less 1 % and 2 ms for clocks that differ.
    /// `None` means never.
    pub(crate) fn deadline(self, lease: Lease) -> Option<Instant> {
        let less_drift = |lasts: Duration| lasts.saturating_sub(lasts / 100 + ms(2));
        match lease {
            Lease::For(lasts) => Some(self.at + less_drift(lasts)),
            Lease::Proven { at, lasts } => {
                Some(self.at + self.tick.until(at.after(less_drift(lasts))))
            }
            Lease::Session => None,
        }
    }
}

/// Awaits an event that must happen within `promised`, plus the slack.
pub(crate) async fn within<T>(
    promised: Duration,
    what: &str,
    future: impl Future<Output = T>,
) -> T {
    let bound = promised + slack();
    timeout(bound, future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen within {bound:?}"))
}

/// Awaits an event that nothing delays any more.
pub(crate) async fn at_once<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(Duration::ZERO, what, future).await
}

pub(crate) async fn step() {
    sleep(STEP).await;
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slack_is_milliseconds_or_a_multiple() {
        assert_eq!(parse("500"), Some(ms(500)));
        assert_eq!(parse("500ms"), Some(ms(500)));
        assert_eq!(parse("3x"), Some(DEFAULT * 3));
        for bad in ["", "x", "3s", "-1x", "NaNx", "-5"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
