//! Sends the renewals that are due together as one statement.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkit_core::{
    Clock, Error, ErrorKind, Result, Tick,
    spi::{Batches, Lease, LossReason, Members, RenewalOutcome},
};
use mysql_async as my;
use tokio::{
    runtime::{Handle, Id},
    time,
};

use super::{
    hold::{Found, Hold, any_of},
    lock,
};
use crate::{
    channel::Checkout,
    connection::Connection,
    error::{self, Phase},
    handshake::value,
    pool::Pool,
    sql::{NOW, WRITABLE},
};

/// How many holds one statement renews at most, because it locks their rows until it is done.
const MOST: usize = 256;
/// How long a renewal waits for others to join it.
const GATHERING: Duration = Duration::from_millis(1);
const WHAT: &str = "renewing leases";

/// The renewal of one hold.
#[derive(Clone, Debug)]
pub(crate) struct Renewal {
    pub(crate) hold: Hold,
    /// Whether the hold has a row of its own. Otherwise it is the lock's row.
    pub(crate) has_holders: bool,
    pub(crate) lease: Duration,
    pub(crate) op_timeout: Duration,
}

/// One statement can renew all holds that agree in these values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sort {
    /// A request stops with the runtime of the claim that began it.
    runtime: Option<Id>,
    has_holders: bool,
    lease: Duration,
    op_timeout: Duration,
}

/// One outcome for each hold, in their order. The error is `None` if another transaction has locked
/// one of the rows.
type Answer = Result<Vec<RenewalOutcome>, Option<Error>>;

/// The renewals of a locker.
pub(crate) struct Renewals {
    pool: Arc<Pool>,
    lock: String,
    holder: String,
    batches: Batches<Sort, Renewal, Answer>,
    /// Until then, each renewal is sent alone.
    alone: Mutex<Option<Tick>>,
}

impl Renewals {
    pub(crate) fn new(pool: Arc<Pool>) -> Arc<Self> {
        let tables = pool.config().tables();
        let lock = tables.table("lock");
        let holder = tables.table("holder");
        let batches = Batches::default();
        Arc::new(Self { pool, lock, holder, batches, alone: Mutex::default() })
    }

    /// Renews a hold, together with all others that are due now.
    ///
    /// # Errors
    /// The outcome may be unknown.
    ///
    /// # Cancel safety
    /// Cancel safe for the other holds.
    pub(crate) async fn renew(self: &Arc<Self>, hold: Renewal) -> Result<RenewalOutcome> {
        let Renewal { has_holders, lease, op_timeout, .. } = hold;
        let runtime = Handle::try_current().ok().map(|runtime| runtime.id());
        let sort = Sort { runtime, has_holders, lease, op_timeout };
        if lock(&self.alone).is_none_or(|until| Clock::Boot.now() >= until) {
            let send = |holds| Arc::clone(self).send(sort, holds);
            let (index, request) = self.batches.join(sort, hold.clone(), MOST, send);
            match request.await.as_ref() {
                Ok(outcomes) => {
                    return outcomes.get(index).copied().ok_or_else(|| error::nonsense(WHAT));
                }
                Err(Some(error)) => return Err(error.copy()),
                // Now each hold is renewed alone, so that none waits for another's row.
                Err(None) => {}
            }
        }
        match self.renew_all(sort, &[hold]).await {
            Ok(outcomes) => outcomes.first().copied().ok_or_else(|| error::nonsense(WHAT)),
            Err(error) => Err(error.unwrap_or_else(|| error::nonsense(WHAT))),
        }
    }

    async fn send(self: Arc<Self>, sort: Sort, holds: Members<Renewal>) -> Arc<Answer> {
        // All claims that are due now get their turn to join. A yield would not be enough, because
        // the claim that drives this may poll twice in a row.
        time::sleep(GATHERING).await;
        let holds = self.batches.close(sort, &holds);
        Arc::new(self.renew_all(sort, &holds).await)
    }

    /// A connection for a renewal. All connections of the pool may wait for rows that others have
    /// locked. A lease must not end because of that, so this takes a side connection then.
    async fn connection(&self, op_timeout: Duration) -> Result<Checkout> {
        let patience = op_timeout * 3 / 8;
        match self.pool.get(patience).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                self.pool.get_side(patience).await
            }
            answer => answer,
        }
    }

    async fn renew_all(
        &self,
        sort: Sort,
        holds: &[Renewal],
    ) -> Result<Vec<RenewalOutcome>, Option<Error>> {
        let mut connection = self.connection(sort.op_timeout).await.map_err(Some)?;
        let table = if sort.has_holders { &self.holder } else { &self.lock };
        let mut trial = Trial { renewals: self, lease: sort.lease, is_over: holds.len() == 1 };
        let mut changed = 0;
        let answer = renew(&mut connection, table, sort, holds, &mut changed).await;
        if !trial.is_over && answer.as_ref().is_err_and(error::is_race) {
            return Err(None);
        }
        trial.is_over = true;
        let answer = self.pool.checked(answer, Phase::Write, WHAT);
        // The holds that were renewed before the question about the rest failed stay renewed.
        answer.map_err(|error| Some(if changed > 0 { error.with_outcome_unknown() } else { error }))
    }
}

/// A request for several holds. If it is dropped midway, another transaction may have locked one of
/// their rows. Then each renewal is sent alone for a while, so that only the lease of that row is
/// at stake.
struct Trial<'a> {
    renewals: &'a Renewals,
    lease: Duration,
    is_over: bool,
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            *lock(&self.renewals.alone) = Some(Clock::Boot.now().after(self.lease));
        }
    }
}

async fn renew(
    connection: &mut Connection,
    table: &str,
    sort: Sort,
    holds: &[Renewal],
    changed: &mut u64,
) -> Result<Vec<RenewalOutcome>, my::Error> {
    let lease = sort.lease.as_micros();
    let rows = any_of(holds.iter().map(|renewal| &renewal.hold));
    // A late renewal never shortens a lease (GREATEST), and never revives one that has ended.
    let update = format!(
        "UPDATE {table} FORCE INDEX(PRIMARY) SET expires_us=GREATEST(expires_us,{NOW}+{lease}) \
         WHERE expires_us>{NOW} AND {WRITABLE} AND ({rows})"
    );
    *changed = connection.script(&update).await?.first().map_or(0, |step| step.outcome.affected);
    if usize::try_from(*changed).is_ok_and(|changed| changed == holds.len()) {
        return Ok(vec![RenewalOutcome::Alive(Lease::For(sort.lease)); holds.len()]);
    }
    // Some holds are gone or had nothing to gain, or the server is no primary. The question locks
    // the rows, because a proxy that sends reads to replicas does not send such a read there. A
    // replica that lags would report that a lease has ended.
    let question = format!(
        "SELECT {WRITABLE};\
         SELECT kind,name,owner,CAST(expires_us AS SIGNED)-{NOW} FROM {table} FORCE INDEX(PRIMARY) WHERE {rows} FOR UPDATE"
    );
    let steps = connection.script(&question).await?;
    if steps.first().and_then(|step| step.rows.first()).and_then(|row| value(row, 0)) != Some(true)
    {
        return Err(connection.demoted());
    }
    let found = Found::<i64>::read(steps.iter().skip(1).flat_map(|step| &step.rows));
    let outcome = |renewal: &Renewal| {
        let left = found.get(&renewal.hold).and_then(|left| u64::try_from(*left).ok());
        match left.filter(|left| *left > 0) {
            // The stored lease is longer than the requested one if the server's clock was set back.
            // The clock may be corrected again, so the requested one counts.
            Some(left) => {
                RenewalOutcome::Alive(Lease::For(Duration::from_micros(left).min(renewal.lease)))
            }
            None => RenewalOutcome::Lost(LossReason::Evicted),
        }
    };
    Ok(holds.iter().map(outcome).collect())
}

impl fmt::Debug for Renewals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewals").field("batches", &self.batches).finish_non_exhaustive()
    }
}
