//! The loop around a leader's work: campaign, lead, and again.

use std::time::Duration;

use super::{Election, Leadership};
use crate::{
    clock::Tick,
    driver::pacing::Backoff,
    error::{Error, ErrorKind, ErrorStatus, Result},
    spi::Poll,
};

/// Pauses between campaigns that came to nothing.
const PAUSES: Poll = Poll { min: Duration::from_millis(20), max: Duration::from_secs(1) };

/// One candidate, over all of its terms.
pub(super) struct Candidacy<'a> {
    election: &'a Election,
    value: &'a str,
    backoff: Backoff,
    /// When it won last.
    won: Tick,
}

impl<'a> Candidacy<'a> {
    pub(super) fn new(election: &'a Election, value: &'a str) -> Self {
        Self { election, value, backoff: Backoff::new(PAUSES), won: Tick::NEVER }
    }

    /// Campaigns until it leads.
    ///
    /// # Errors
    /// What campaigning again can't mend.
    pub(super) async fn win(&mut self) -> Result<Leadership> {
        loop {
            match self.election.campaign(self.value).await {
                Ok(leadership) => {
                    self.won = self.now();
                    return Ok(leadership);
                }
                Err(error) if may_pass(&error) => {
                    tracing::warn!(name = %self.election.name(), "a campaign failed, the next one follows: {error}");
                    self.pause().await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Resigns after the work was done; `None` if the leadership was lost before, after a pause.
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
                tracing::warn!(name = %self.election.name(), "the work is done, the resignation got no answer: {error}");
            }
        }
        Some(output)
    }

    /// After a loss. A store that takes each term away at once is not asked without a pause.
    async fn rest(&mut self) {
        if self.won.until(self.now()) >= self.election.handle.limits().ttl {
            self.backoff = Backoff::new(PAUSES);
        } else {
            self.pause().await;
        }
    }

    /// A shutdown is noticed by the next campaign.
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
