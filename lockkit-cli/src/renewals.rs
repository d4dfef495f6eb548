//! Reports how the renewals of a job's lock go, so that a user learns why lockkit stops the job.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lockkit::{Event, LockGuard, Observer, What};
use tokio::sync::Notify;

use crate::reporter::Reporter;

/// Remembers why the last renewal failed. A process renews only one lock: the one that its job runs
/// under.
#[derive(Debug, Default)]
pub(crate) struct Renewals {
    failure: Mutex<Option<String>>,
    changed: Notify,
}

impl Observer for Renewals {
    fn on_event(&self, event: &Event<'_>) {
        let failure = match event.what {
            What::Acquired { .. } | What::Renewed { .. } => None,
            What::RenewalFailed { error, .. } => Some(error.to_string()),
            _ => return,
        };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
        self.changed.notify_one();
    }
}

impl Renewals {
    /// Why the last renewal failed; `None` if it succeeded.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports when renewals begin to fail and when they succeed again, for as long as it is
    /// polled.
    pub(crate) async fn report(
        &self,
        name: &str,
        guard: &LockGuard,
        grace: Duration,
        reporter: Reporter,
    ) {
        let mut fails = false;
        loop {
            self.changed.notified().await;
            let failure = self.failure();
            match &failure {
                Some(error) if !fails => {
                    let left = guard.remaining().saturating_sub(grace).as_secs();
                    reporter.say(&format!(
                        "could not renew {name:?}: {error}; lockkit tries again, and stops the \
                         command in {left}s if no renewal succeeds"
                    ));
                }
                None if fails => reporter.say(&format!("{name:?} is renewed again")),
                _ => {}
            }
            fails = failure.is_some();
        }
    }
}
