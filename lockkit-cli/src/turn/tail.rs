//! Bounds the requests to the store after a command. A signal shortens the bound.

use std::{future::Future, time::Duration};

use lockkit::LockGuard;
use rustix::process::Signal;
use tokio::time::{Instant, sleep_until};

use crate::signals::Signals;

/// The time that is left after a signal: enough for a store that answers.
const HURRIED: Duration = Duration::from_millis(250);
/// A time that is practically endless.
const LONG: Duration = Duration::from_secs(86_400 * 365);

/// The time after a command has ended.
#[derive(Debug)]
pub(crate) struct Tail<'a> {
    signals: &'a Signals,
    /// The end of the lease, as it was known when the command ended.
    lease_end: Instant,
    /// The signal that shortens the bound, and the new end.
    hurry: Option<(Signal, Instant)>,
}

impl<'a> Tail<'a> {
    /// The time after a command that has just ended.
    pub(super) fn new(signals: &'a Signals, guard: &LockGuard) -> Self {
        Self { signals, lease_end: Instant::now() + guard.remaining().min(LONG), hurry: None }
    }

    /// The answer, if it comes within `bound` and before the end of the lease. After that the store
    /// accepts nothing from the holder.
    pub(crate) async fn before_lease_end<T>(
        &mut self,
        bound: Duration,
        asking: impl Future<Output = T>,
    ) -> Option<T> {
        let until = self.lease_end.min(Instant::now() + bound.min(LONG));
        self.until(until, asking).await
    }

    /// The answer, if it comes within `bound`.
    pub(super) async fn within<T>(
        &mut self,
        bound: Duration,
        asking: impl Future<Output = T>,
    ) -> Option<T> {
        self.until(Instant::now() + bound, asking).await
    }

    /// The rest of the lease, as it was known when the command ended.
    pub(crate) fn lease_left(&self) -> Duration {
        self.lease_end.saturating_duration_since(Instant::now())
    }

    /// The signal that came during this time.
    pub(super) fn signal(&self) -> Option<Signal> {
        self.hurry.map(|(signal, _)| signal)
    }

    async fn until<T>(&mut self, until: Instant, asking: impl Future<Output = T>) -> Option<T> {
        let mut asking = std::pin::pin!(asking);
        loop {
            let end = self.hurry.map_or(until, |(_, hurried)| hurried.min(until));
            tokio::select! {
                biased;
                answer = &mut asking => return Some(answer),
                () = sleep_until(end) => return None,
                signal = self.signals.end() => {
                    self.hurry.get_or_insert((signal, Instant::now() + HURRIED));
                }
            }
        }
    }
}
