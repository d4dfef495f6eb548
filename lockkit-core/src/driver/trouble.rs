//! Decides how a waiter reacts to a store that answers with errors.

use std::time::Duration;

use super::pacing::Backoff;
use crate::{
    clock::Tick,
    error::{Error, ErrorKind, ErrorStatus, Result},
    options::Limits,
    spi::Poll,
};

const TROUBLED: Poll = Poll { min: Duration::from_millis(20), max: Duration::from_secs(1) };

/// The last error of the store, and since when the store has answered with errors.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    since: Option<Tick>,
    error: Option<Error>,
    backoff: Option<Backoff>,
}

impl Trouble {
    pub(super) fn is_none(&self) -> bool {
        self.error.is_none()
    }

    pub(super) fn goes_on(&mut self, asked: Tick, error: Error) {
        self.since.get_or_insert(asked);
        self.error = Some(error);
    }

    pub(super) fn store_is_too_slow(&mut self, asked: Tick, limits: Limits) {
        let text = format!(
            "the store granted the lock, but its answer took longer than the lease of {:?}; use a longer ttl",
            limits.ttl
        );
        self.goes_on(asked, Error::new(ErrorKind::Unavailable, text));
    }

    /// The pause before the next attempt. A store that wakes its waiters is polled slowly, but a
    /// store in trouble is asked again soon.
    pub(super) fn pause(&mut self) -> Duration {
        let backoff = self.backoff.get_or_insert_with(|| Backoff::new(TROUBLED));
        let pause = backoff.jittered();
        backoff.grow();
        pause
    }

    pub(super) fn is_over(&mut self) {
        *self = Self::default();
    }

    /// The error, if the store has been in trouble for too long. A wait without a bound survives a
    /// restart of the store, but it must not hide for ever that the store is gone.
    pub(super) fn outlasts(&mut self, now: Tick, limits: Limits) -> Option<Error> {
        let patience = limits.ttl.max(limits.op_timeout * 3);
        if self.since?.until(now) < patience {
            return None;
        }
        self.error.take().map(|error| error.with_status(ErrorStatus::Persistent))
    }

    pub(super) fn at_the_bound<T>(self) -> Result<Option<T>> {
        self.error.map_or(Ok(None), Err)
    }
}
