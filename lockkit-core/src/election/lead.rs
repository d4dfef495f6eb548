//! Runs the loop around a leader's work: campaign, lead, and campaign again.

use std::time::Duration;

use super::{Election, Leadership};
use crate::{
    clock::Tick,
    driver::pacing::Backoff,
    error::{Error, ErrorKind, ErrorStatus, Result},
    spi::Poll,
};

/// The pauses between campaigns that failed.
const PAUSES: Poll = Poll { min: Duration::from_millis(20), max: Duration::from_secs(1) };

/// One candidate, over all its terms.
pub(super) struct Candidacy<'a> {
    election: &'a Election,
    value: &'a str,
    backoff: Backoff,
    /// The instant of its last win.
    won: Tick,
}

impl<'a> Candidacy<'a> {
    pub(super) fn new(election: &'a Election, value: &'a str) -> Self {
        Self { election, value, backoff: Backoff::new(PAUSES), won: Tick::NEVER }
    }

    /// Campaigns until the candidate leads.
    ///
    /// # Errors
    /// An error that another campaign can't mend.
    pub(super) async fn win(&mut self) -> Result<Leadership> {
        loop {
            match self.election.campaign(self.value).await {
                Ok(leadership) => {
                    self.won = self.now();
                    return Ok(leadership);
                }
                Err(error) if may_pass(&error) => {
                    tracing::warn!(name = %self.election.name(), "a campaign failed, and another \
                                                                  one starts: {error}");
                    self.pause().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Resigns after the work is done. If the leadership was lost before, it pauses and returns
    /// `None`.
    pub(super) async fn end<T>(&mut self, leadership: Leadership, done: Result<T>) -> Option<T> {
        let Ok(output) = done else {
            drop(leadership);
            self.rest().await;
            return None;
        };
        match leadership.resign().await {
            Ok(()) => {}
            Err(lost) if lost.kind() == ErrorKind::Lost => {
                self.rest().await;
                return None;
            }
            Err(error) => {
                tracing::warn!(name = %self.election.name(), "the work is done, but the \
                                                              resignation failed: {error}");
            }
        }
        Some(output)
    }

    /// Rests after a loss, so that a store which takes each term away at once is not asked without
    /// a pause.
    async fn rest(&mut self) {
        if self.won.until(self.now()) >= self.election.handle.limits().ttl {
            self.backoff = Backoff::new(PAUSES);
        } else {
            self.pause().await;
        }
    }

    /// Pauses before the next campaign. A shutdown ends the pause; the next campaign then notices
    /// the shutdown.
    async fn pause(&mut self) {
        let locker = self.election.handle.locker().keeper.locker();
        let closing = locker.closing.notified();
        if locker.is_draining() {
            return;
        }
        tokio::select! {
            () = closing => {}
            () = locker.clock.sleep_until(self.now().after(self.backoff.jittered())) => self.backoff.grow(),
        }
    }

    fn now(&self) -> Tick {
        self.election.handle.locker().keeper.locker().clock.now()
    }
}

fn may_pass(error: &Error) -> bool {
    match error.status() {
        ErrorStatus::Temporary | ErrorStatus::Persistent => true,
        ErrorStatus::Permanent => false,
    }
}
