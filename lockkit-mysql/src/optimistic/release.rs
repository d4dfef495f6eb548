//! Releases several mutexes with one statement while the server is busy.
//!
//! 1. While few connections are in use, a release is a request of its own.
//! 2. Otherwise it joins a batch. One batch is under way at a time. When it is answered, the next one
//!    is sent, with all releases that have come meanwhile.
//! 3. The statement frees those rows whose leases are live. It writes the number of the batch in the
//!    place of the end of the lease.
//! 4. If it has changed fewer rows than there are releases, a second request reads these numbers. A
//!    release without the number is sent alone, so its claim learns whether it had lost the lock.

#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use lockkit_core::Result;
use tokio::{
    runtime::{Handle, Id},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};

use super::{
    batches::{Batches, Members, lock},
    hold::{Found, Hold, any_of},
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
const WHAT: &str = "releasing";

/// How a batch has ended for one of its holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The answer of [`Store::release`].
    Answered(Option<bool>),
    /// The batch did not free the lock, and does not say why. So the claim asks alone.
    NotFreed,
    /// The batch may have freed the lock. The claim asks alone, and only the answer that the lock
    /// was held until then is certain.
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
#[derive(Debug)]
pub(crate) struct Releases {
    batches: Batches<Sort, Hold, Answer>,
    /// The batch that is under way has the permit.
    turn: Mutex<Arc<Semaphore>>,
    /// The number of the next batch. No batch has the number 0, which a lone release writes. All
    /// numbers are far below the present time, so a row with such an end is free.
    next: AtomicU64,
}

impl Default for Releases {
    fn default() -> Self {
        let turn = Mutex::new(Arc::new(Semaphore::new(1)));
        Self { batches: Batches::default(), turn, next: AtomicU64::new(1) }
    }
}

impl Releases {
    /// Waits until the batch that is under way is answered. If that takes too long, later batches
    /// wait for the present one instead.
    async fn turn(&self, patience: Duration) -> Option<OwnedSemaphorePermit> {
        let turn = lock(&self.turn).clone();
        if let Ok(Ok(permit)) = time::timeout(patience, turn.acquire_owned()).await {
            return Some(permit);
        }
        let turn = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&turn).try_acquire_owned().ok();
        *lock(&self.turn) = turn;
        permit
    }
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
        let send = |holds| Arc::clone(self).send_releases(sort, holds).boxed();
        let (index, request) = self.releases.batches.join(sort, hold, MOST, send);
        match request.await.as_ref() {
            Ok(outcomes) => outcomes.get(index).copied().ok_or_else(|| error::nonsense(WHAT)),
            Err(error) => Err(error::again(error)),
        }
    }

    async fn send_releases(self: Arc<Self>, sort: Sort, holds: Members<Hold>) -> Arc<Answer> {
        let turn = self.releases.turn(LATE.min(sort.op_timeout / 8)).await;
        // Together less than the whole budget, so that each caller still receives the reason of a
        // failure. Further releases join meanwhile.
        let connection = self.pool.get(sort.op_timeout * 5 / 8).await;
        let holds = self.releases.batches.close(sort, &holds);
        let answer = match connection {
            Ok(connection) => self.free(connection, sort.op_timeout / 4, &holds).await,
            // Nothing was sent. Each claim waits for a connection for as long as its own budget
            // allows.
            Err(_) => Ok(vec![Outcome::NotFreed; holds.len()]),
        };
        drop(turn);
        Arc::new(answer)
    }

    /// Gives up after `limit`, because another transaction may have locked one of the rows. The
    /// server then ends the statement, as the connection is dropped midway.
    async fn free(&self, mut connection: Checkout, limit: Duration, holds: &[Hold]) -> Answer {
        if let [Hold { name, owner, .. }] = holds {
            let client = self.client;
            let asked =
                LockRequest { name, owner, label: "", lease_us: 0, not_after_us: 0, client };
            let found = self.release(&mut connection, Form::Row, &asked, None).await?;
            return Ok(vec![Outcome::Answered(found)]);
        }
        let answer = time::timeout(limit, self.free_all(&mut connection, holds)).await;
        answer.unwrap_or_else(|_| Ok(vec![Outcome::InDoubt; holds.len()]))
    }

    async fn free_all(&self, connection: &mut Connection, holds: &[Hold]) -> Answer {
        let table = self.pool.config().tables().table("lock");
        let number = self.releases.next.fetch_add(1, Relaxed);
        let rows = any_of(holds.iter());
        let update = format!(
            "UPDATE {table} FORCE INDEX(PRIMARY) SET expires_us={number},touched_us={NOW} \
             WHERE expires_us>{NOW} AND ({rows})"
        );
        let freed = match connection.script(&update).await {
            Ok(steps) => steps.first().map_or(0, |step| step.outcome.affected),
            // The server has undone the whole statement.
            Err(error) if error::is_race(&error) => 0,
            Err(error) => return self.pool.checked(Err(error), Phase::Write, WHAT),
        };
        if usize::try_from(freed).is_ok_and(|freed| freed == holds.len()) {
            return Ok(vec![Outcome::Answered(Some(true)); holds.len()]);
        }
        if freed == 0 {
            return Ok(vec![Outcome::NotFreed; holds.len()]);
        }
        // The question locks the rows, so that a proxy does not send it to a replica.
        let question = format!(
            "SELECT kind,name,owner,expires_us FROM {table} FORCE INDEX(PRIMARY) WHERE {rows} FOR UPDATE"
        );
        let answer = connection.script(&question).await;
        Ok(match self.pool.checked(answer, Phase::Read, WHAT) {
            Ok(steps) => {
                let ends = Found::read(steps.iter().flat_map(|step| &step.rows));
                outcomes(holds, freed, number, &ends)
            }
            Err(_) => vec![Outcome::InDoubt; holds.len()],
        })
    }
}

/// The outcomes of the batch with this number, which has freed so many rows. `ends` has the rows
/// that still have their owners. If the number is missing there for some of the freed rows, these
/// rows have new owners. Then nothing shows whether a hold without the number was freed.
fn outcomes(holds: &[Hold], freed: u64, number: u64, ends: &Found<u64>) -> Vec<Outcome> {
    let mut unseen = freed;
    for end in ends.values() {
        unseen -= u64::from(*end == number).min(unseen);
    }
    let rest = if unseen == 0 { Outcome::NotFreed } else { Outcome::InDoubt };
    let outcome = |hold: &Hold| match ends.get(hold) {
        Some(end) if *end == number => Outcome::Answered(Some(true)),
        _ => rest,
    };
    holds.iter().map(outcome).collect()
}
