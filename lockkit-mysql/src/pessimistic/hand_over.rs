//! The hand-over of a row lock inside the process: the transaction stays, and the fence goes to
//! another owner.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Clock, Error, FencingToken, Result, Tick};
use mysql_async as my;

use super::{
    Store,
    acquire::RACES,
    hold::{Hold, Life},
    sql::Key,
};
use crate::error::{self, Phase};

impl Store {
    /// Gives the fence of a hold to `heir`, on another connection, and proves on its own that the
    /// row was locked then. Returns the new fence and when that was proven; `None` if the hold is
    /// lost.
    ///
    /// # Errors
    /// Unknown if the heir may have the fence.
    ///
    /// # Cancel safety
    /// Dropped midway, the hold stands, and whichever of the two has the fence, can be released by
    /// it.
    pub(super) async fn hand_over(
        &self,
        hold: &mut Hold,
        key: &Key,
        heir: &Arc<Key>,
        op_timeout: Duration,
    ) -> Result<Option<(FencingToken, Tick)>> {
        let what = "handing over";
        let deadline = Clock::Boot.now().after(op_timeout);
        let mut side = self.pool.get_side(op_timeout * 3 / 4).await?;
        for _ in 0..2 {
            let not_after = self.pool.server_time(deadline);
            hold.set_heir(Some(Arc::clone(heir)));
            let mut races = 0;
            let answer = loop {
                let answer: Result<_, my::Error> =
                    side.run(&self.sql.reissue, key.reissue(&self.sql, heir, not_after)).await;
                match answer {
                    Err(error) if error::is_race(&error) && races < RACES => races += 1,
                    answer => break self.pool.checked(answer, Phase::Write, what),
                }
            };
            if answer.as_ref().is_err_and(|error| !error.is_outcome_unknown()) {
                hold.set_heir(None);
            }
            if answer?.id > 0 {
                let life = self.pool.checked(hold.take_over(heir).await, Phase::Write, what);
                let life = life.map_err(Error::with_outcome_unknown)?;
                return Ok(match life {
                    Life::Alive { at } => Some((FencingToken::new(hold.fence()), at)),
                    Life::Evicted | Life::Gone => {
                        hold.close();
                        None
                    }
                });
            }
            hold.set_heir(None);
            if !matches!(
                self.pool.checked(hold.ping().await, Phase::Read, what)?,
                Life::Alive { .. }
            ) {
                hold.close();
                return Ok(None);
            }
            // It is ours, so the request came late, or so it seems to us.
            self.pool.ask_time(&mut side).await?;
        }
        Err(error::late(op_timeout))
    }

    /// Raises the fence of a hold. Returns what it is now; `None` if the hold is lost.
    ///
    /// # Errors
    /// Unknown if it may have been raised.
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
                    let outcome = self.pool.checked(answer, Phase::Write, "raising the fence")?;
                    if outcome.id == 0 {
                        self.pool.ask_time(&mut side).await?;
                    }
                    return Ok(outcome.id > 0);
                }
            }
        }
    }
}
