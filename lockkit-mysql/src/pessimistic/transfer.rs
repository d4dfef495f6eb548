//! Transfers a row lock inside the process. The transaction stays open, and the token row goes to
//! another owner.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Clock, Error, FencingToken, Result, Tick};
use mysql_async as my;

use super::{
    Store,
    acquire::RACES,
    row_lock::{PingOutcome, RowLock},
    sql::Key,
};
use crate::error::{self, Phase};

impl Store {
    /// Gives the token row of a hold to `successor`, on another connection. Then the hold's own
    /// connection proves that the row was locked at that time. Returns the new token and the time
    /// of the proof; `None` if the hold is lost.
    ///
    /// # Errors
    /// The outcome is unknown if the successor may have the token row.
    ///
    /// # Cancel safety
    /// If the call is dropped midway, the hold is still there. Either of the two owners may have
    /// the token then, and the hold can be released for either.
    pub(super) async fn transfer(
        &self,
        hold: &mut RowLock,
        key: &Key,
        successor: &Arc<Key>,
        op_timeout: Duration,
    ) -> Result<Option<(FencingToken, Tick)>> {
        let what = "handing over";
        let deadline = Clock::Boot.now().after(op_timeout);
        let mut side = self.pool.get_side(op_timeout * 3 / 4).await?;
        for _ in 0..2 {
            let not_after = self.pool.server_time(deadline);
            hold.set_successor(Some(Arc::clone(successor)));
            let mut races = 0;
            let answer = loop {
                let answer: Result<_, my::Error> = side
                    .run(&self.sql.transfer, key.transfer(&self.sql, successor, not_after))
                    .await;
                match answer {
                    Err(error) if error::is_race(&error) && races < RACES => races += 1,
                    answer => break self.pool.checked(answer, Phase::Write, what),
                }
            };
            if answer.as_ref().is_err_and(|error| !error.is_outcome_unknown()) {
                hold.set_successor(None);
            }
            if answer?.id > 0 {
                let life = self.pool.checked(hold.take_over(successor).await, Phase::Write, what);
                let life = life.map_err(Error::with_outcome_unknown)?;
                return Ok(match life {
                    PingOutcome::Alive { at } => Some((FencingToken::new(hold.token()), at)),
                    PingOutcome::Evicted | PingOutcome::Gone => {
                        hold.close();
                        None
                    }
                });
            }
            hold.set_successor(None);
            if !matches!(
                self.pool.checked(hold.ping().await, Phase::Read, what)?,
                PingOutcome::Alive { .. }
            ) {
                hold.close();
                return Ok(None);
            }
            // The hold is ours, so the request came late, or our estimate of the server's time was
            // wrong.
            self.pool.ask_time(&mut side).await?;
        }
        Err(error::late(op_timeout))
    }

    /// Raises the token of a hold to at least `floor`. False if the hold is lost.
    ///
    /// # Errors
    /// The outcome is unknown if the token may have been raised.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn raise(&self, key: &Key, floor: u64, patience: Duration) -> Result<bool> {
        let mut side = self.pool.get_side(patience).await?;
        let mut races = 0;
        loop {
            let answer: Result<_, my::Error> = side.run(&self.sql.raise, key.raise(floor)).await;
            match answer {
                Err(error) if error::is_race(&error) && races < RACES => races += 1,
                answer => {
                    let outcome = self.pool.checked(answer, Phase::Write, "raising the token")?;
                    if outcome.id == 0 {
                        self.pool.ask_time(&mut side).await?;
                    }
                    return Ok(outcome.id > 0);
                }
            }
        }
    }
}
