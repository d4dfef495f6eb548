//! Measures how long this machine paused.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const NAP: Duration = Duration::from_millis(1);

/// Measures the longest time for which this machine let a thread wait for its turn.
///
/// A test that asserts an upper bound on time fails when the machine pauses, and a generous bound
/// catches less. With a meter beside it, the bound is that of the promise plus the measured stall:
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use lockkit_conformance::StallMeter;
///
/// let meter = StallMeter::start();
/// let start = Instant::now();
/// // … what is to be done within 20 ms …
/// let took = start.elapsed();
/// assert!(took < Duration::from_millis(20) + meter.longest(), "{took:?}");
/// ```
///
/// The meter is a thread that sleeps for a millisecond at a time. On a machine that does not pause,
/// it measures about 1.1 ms. Work that takes several turns of several threads may be late by
/// several such stalls, and a server has stalls of its own.
#[derive(Debug)]
pub struct StallMeter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    gaps: Mutex<Gaps>,
    ended: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Gaps {
    last_turn: Instant,
    pub(crate) longest: Duration,
}

impl Gaps {
    pub(crate) fn new() -> Self {
        Self { last_turn: Instant::now(), longest: Duration::ZERO }
    }

    pub(crate) fn take_turn(&mut self) {
        let now = Instant::now();
        self.longest = self.longest.max(now.saturating_duration_since(self.last_turn));
        self.last_turn = now;
    }
}

impl StallMeter {
    /// Starts to measure, and measures until the meter is dropped.
    ///
    /// # Panics
    /// The system can't start a thread for the meter.
    #[must_use]
    pub fn start() -> Self {
        let shared =
            Arc::new(Shared { gaps: Mutex::new(Gaps::new()), ended: AtomicBool::new(false) });
        let thread = thread::Builder::new().name("stall meter".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                while !shared.ended.load(SeqCst) {
                    thread::sleep(NAP);
                    shared.gaps().take_turn();
                }
            }
        });
        Self { shared, thread: Some(thread.expect("a thread for the meter")) }
    }

    /// The longest stall since the start or the last [`restart`](Self::restart). The present,
    /// unfinished stall counts too.
    #[must_use]
    pub fn longest(&self) -> Duration {
        let mut gaps = *self.shared.gaps();
        // The caller may have got its turn before the meter's thread has.
        gaps.take_turn();
        gaps.longest
    }

    /// Forgets earlier stalls, before the next measurement.
    pub fn restart(&self) {
        *self.shared.gaps() = Gaps::new();
    }
}

impl Drop for StallMeter {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn gaps(&self) -> MutexGuard<'_, Gaps> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_millis(50);

    #[test]
    fn a_stall_is_measured_while_it_lasts() {
        let meter = StallMeter::start();
        let gaps = meter.shared.gaps();
        thread::sleep(STALL);
        let mut now = *gaps;
        now.take_turn();
        assert!(now.longest >= STALL, "{now:?}");
        drop(gaps);
        assert!(meter.longest() >= STALL, "{meter:?}");
    }

    #[test]
    fn values_before_a_restart_are_forgotten() {
        let meter = StallMeter::start();
        meter.shared.gaps().longest = STALL * 1_000;
        assert!(meter.longest() >= STALL * 1_000);
        meter.restart();
        assert!(meter.longest() < STALL * 1_000);
    }

    #[test]
    fn its_thread_ends_with_it() {
        let meter = StallMeter::start();
        let shared = Arc::downgrade(&meter.shared);
        drop(meter);
        assert_eq!(shared.strong_count(), 0);
    }
}
