//! Releases several mutexes with one statement while the client is busy.
//!
//! 1. While few connections are in use, a release is a request of its own.
//! 2. Otherwise it joins a batch. One batch of each sort is under way at a time. When it is answered,
//!    the next one is sent, with all releases that have come meanwhile.
//! 3. The statement frees those rows whose leases are live. It writes [`FREED_TOGETHER`] in the place
//!    of the end of the lease.
//! 4. If it has changed fewer rows than there are releases, a second request reads these ends. Each
//!    release whose row has another end is sent alone, so its claim learns whether it had lost the
//!    lock.
//! 5. If the batch was not answered, each release is sent alone. It finds [`FREED_TOGETHER`] in the
//!    row that the batch has freed, unless the row has a new owner by then.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkit_core::{
    Clock, Result,
    spi::{Batches, Members},
};
use tokio::{
    runtime::{Handle, Id},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};

use super::{
    hold::{Found, Hold, any_of},
    lock,
    record::{Form, LockRequest},
    store::Store,
};
use crate::{
    channel::Checkout,
    connection::Connection,
    error::{self, Phase},
    sql::NOW,
};

/// While so many connections are in use, releases join a batch. A smaller pool counts as busy when
/// all of its connections are in use.
const BUSY: usize = 4;
/// How many holds one statement frees at most, because it locks their rows until it is done.
const MOST: usize = 32;
/// How long a batch waits for the one that is under way. After that, the earlier batch is late, and
/// delays no other.
const LATE: Duration = Duration::from_millis(100);
/// The end of a lease that a batch has freed. It is far below the present time, so the row is free.
/// A lone release writes 0.
///
/// Only a batch writes this end, and the next grant writes another one. So in a row of its owner,
/// this end proves that a batch has freed the last grant.
pub(crate) const FREED_TOGETHER: u64 = 1;
const WHAT: &str = "releasing";

/// How a batch has ended for one of its holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The answer of [`Store::release`].
    Answered(Option<bool>),
    /// The batch did not free the lock, and does not say why. So the claim asks alone.
    NotFreed,
    /// The batch may have freed the lock. So the claim asks alone. Only if its row has another owner
    /// by then, the outcome stays unknown.
    InDoubt,
}

/// One outcome for each hold, in their order.
type Answer = Result<Vec<Outcome>>;

/// One batch can have all holds that agree in these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sort {
    /// A request stops with the runtime of the claim that began it.
    runtime: Option<Id>,
    op_timeout: Duration,
}

/// The releases of a locker.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    batches: Batches<Sort, Hold, Answer>,
    /// The batch of a sort that is under way has the permit.
    turns: Mutex<HashMap<Sort, Arc<Semaphore>>>,
}

impl Releases {
    /// Waits until the batch of this sort that is under way is answered. If that takes too long,
    /// later batches wait for the present one instead. `None` if another batch was faster.
    async fn turn(&self, sort: Sort, patience: Duration) -> Option<OwnedSemaphorePermit> {
        let turn = {
            let mut turns = lock(&self.turns);
            // The others are neither in use nor waited for.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(sort).or_insert_with(one_at_a_time))
        };
        let permit = time::timeout(patience, Arc::clone(&turn).acquire_owned()).await;
        if let Ok(Ok(permit)) = permit {
            return Some(permit);
        }
        let mut turns = lock(&self.turns);
        let present = turns.entry(sort).or_insert_with(one_at_a_time);
        if Arc::ptr_eq(present, &turn) {
            *present = one_at_a_time();
        }
        Arc::clone(present).try_acquire_owned().ok()
    }
}

fn one_at_a_time() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

impl Store {
    /// Whether releases should join a batch.
    pub(crate) fn is_busy(&self) -> bool {
        self.pool.in_use() >= BUSY.min(self.pool.config().pool_size)
    }

    /// Releases a mutex together with others.
    ///
    /// # Errors
    /// The outcome is unknown if the connection broke.
    ///
    /// # Cancel safety
    /// Cancel safe for the other holds. The batch may free the lock of a call that was dropped, but
    /// no later grant.
    pub(crate) async fn release_together(
        self: &Arc<Self>,
        hold: Hold,
        op_timeout: Duration,
    ) -> Result<Outcome> {
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let sort = Sort { runtime, op_timeout };
        let send = |holds| Arc::clone(self).send_releases(sort, holds);
        let (index, request) = self.releases.batches.join(sort, hold, MOST, send);
        match request.await.as_ref() {
            Ok(outcomes) => {
                let outcome = outcomes.get(index).copied();
                outcome.ok_or_else(|| error::nonsense(WHAT).with_outcome_unknown())
            }
            Err(error) => Err(error.copy()),
        }
    }

    async fn send_releases(self: Arc<Self>, sort: Sort, holds: Members<Hold>) -> Arc<Answer> {
        let begun = Clock::Boot.now();
        let budget = sort.op_timeout;
        let turn = self.releases.turn(sort, LATE.min(budget / 8)).await;
        // Further releases join meanwhile.
        let connection = self.pool.get_if_free(budget / 2).await;
        let holds = self.releases.batches.close(sort, &holds);
        // Together three quarters of the budget, so that each claim can still ask alone.
        let spent = begun.until(Clock::Boot.now());
        let limit = (budget * 3 / 4).saturating_sub(spent).max(budget / 4);
        let answer = match connection {
            Ok(Some(connection)) => self.free(connection, limit, &holds).await,
            // Nothing was sent. Each claim waits for a connection for as long as its own budget
            // allows.
            Ok(None) => Ok(vec![Outcome::NotFreed; holds.len()]),
            Err(error) => Err(error),
        };
        drop(turn);
        Arc::new(answer)
    }

    /// Gives up after `limit`, because another transaction may have locked one of the rows. The
    /// server gives up waiting for a row after a second, which is sooner with most budgets. Then
    /// nothing is in doubt.
    async fn free(&self, mut connection: Checkout, limit: Duration, holds: &[Hold]) -> Answer {
        if let [Hold { name, owner, .. }] = holds {
            let client = self.client;
            let asked =
                LockRequest { name, owner, label: "", lease_us: 0, not_after_us: 0, client };
            let found = self.release(&mut connection, Form::Row, &asked, None, false).await?;
            return Ok(vec![Outcome::Answered(found)]);
        }
        let answer = time::timeout(limit, self.free_all(&mut connection, holds)).await;
        answer.unwrap_or_else(|_| Ok(vec![Outcome::InDoubt; holds.len()]))
    }

    async fn free_all(&self, connection: &mut Connection, holds: &[Hold]) -> Answer {
        let table = self.pool.config().tables().table("lock");
        let rows = any_of(holds.iter());
        let update = format!(
            "UPDATE {table} FORCE INDEX(PRIMARY) SET expires_us={FREED_TOGETHER},touched_us={NOW} \
             WHERE expires_us>{NOW} AND ({rows})"
        );
        let freed = match connection.script(&update).await {
            Ok(steps) => steps.first().map_or(0, |step| step.outcome.affected),
            // The server has undone the whole statement. If the rollback fails, the connection is
            // closed.
            Err(error) if error::is_race(&error) => {
                let _ = connection.roll_back().await;
                return Ok(vec![Outcome::NotFreed; holds.len()]);
            }
            Err(error) => return self.pool.checked(Err(error), Phase::Write, WHAT),
        };
        if usize::try_from(freed).is_ok_and(|freed| freed == holds.len()) {
            return Ok(vec![Outcome::Answered(Some(true)); holds.len()]);
        }
        // The question locks the rows, so that a proxy does not send it to a replica.
        let question = format!(
            "SELECT kind,name,owner,expires_us FROM {table} FORCE INDEX(PRIMARY) WHERE {rows} FOR UPDATE"
        );
        let answer = connection.script(&question).await;
        Ok(match self.pool.checked(answer, Phase::Read, WHAT) {
            Ok(steps) => {
                let ends = Found::read(steps.iter().flat_map(|step| &step.rows));
                outcomes(holds, freed, &ends)
            }
            Err(_) => vec![Outcome::InDoubt; holds.len()],
        })
    }
}

/// The outcomes of a batch that has freed so many rows. `ends` has the rows that still have their
/// owners. If fewer of them were freed by the batch, the others have new owners. Then nothing shows
/// whether a hold without a row was freed.
fn outcomes(holds: &[Hold], freed: u64, ends: &Found<u64>) -> Vec<Outcome> {
    let seen = ends.values().filter(|end| **end == FREED_TOGETHER).count();
    let are_all_seen = u64::try_from(seen).is_ok_and(|seen| seen >= freed);
    let rest = if are_all_seen { Outcome::NotFreed } else { Outcome::InDoubt };
    let outcome = |hold: &Hold| match ends.get(hold) {
        Some(&FREED_TOGETHER) => Outcome::Answered(Some(true)),
        _ => rest,
    };
    holds.iter().map(outcome).collect()
}
