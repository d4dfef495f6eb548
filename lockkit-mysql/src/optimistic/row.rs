//! A mutex: one row, which is its lease.

use std::time::Duration;

use lockkit_core::spi::{GrantId, QueuePolicy};
use mysql_async::{self as my, Value};

use crate::{
    connection::Connection,
    sql::{LEAST_TOKEN, NOW, WRITABLE, literal, this},
    tables::Tables,
};

use super::{
    known::KnownRows,
    record::{Answer, LockRequest, Predecessor, TransferAnswer},
    release::FREED_TOGETHER,
};

/// The statements about the rows of mutexes.
#[derive(Debug)]
pub(crate) struct RowSql {
    acquire: String,
    acquire_known: String,
    known: KnownRows,
    release: String,
    transfer: String,
    transfer_or_free: String,
    raise: String,
    lock: String,
}

impl RowSql {
    pub(crate) fn new(tables: &Tables) -> Self {
        let lock = tables.table("lock");
        // The last owner stays in the row. Without `expires_us` it means nothing, and a row whose
        // length does not change is changed in place.
        let release = format!(
            "UPDATE {lock} SET expires_us=0*LAST_INSERT_ID(IF(expires_us>{NOW} OR expires_us=?,{FREED},{LAPSED})),\
             touched_us={NOW} WHERE kind=? AND name=? AND owner IN(?,?)"
        );
        let raise = format!(
            "UPDATE {lock} SET fence=LAST_INSERT_ID(GREATEST(fence,?)) \
             WHERE kind=? AND name=? AND owner=? AND expires_us>{NOW} AND {WRITABLE}"
        );
        Self {
            acquire: acquire(&lock),
            acquire_known: acquire_known(&lock),
            known: KnownRows::default(),
            release,
            transfer: transfer(&lock),
            transfer_or_free: transfer_or_free(&lock),
            raise,
            lock,
        }
    }

    pub(crate) async fn acquire(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
    ) -> Result<Answer, my::Error> {
        let owner = || Value::from(asked.owner);
        if self.known.contains(asked.name) {
            let params = vec![
                owner(),
                asked.label.into(),
                asked.client.into(),
                asked.lease_us.into(),
                asked.kind().into(),
                asked.name.as_str().into(),
                asked.not_after_us.into(),
                owner(),
            ];
            match Answer::of(connection.run(&self.acquire_known, params).await?.id) {
                Answer::Late => {}
                answer => return Ok(answer),
            }
        }
        let params = vec![
            asked.kind().into(),
            asked.name.as_str().into(),
            owner(),
            asked.lease_us.into(),
            asked.label.into(),
            asked.not_after_us.into(),
            owner(),
            asked.label.into(),
            asked.client.into(),
            owner(),
            owner(),
            owner(),
            asked.lease_us.into(),
        ];
        let answer = Answer::of(connection.run(&self.acquire, params).await?.id);
        if answer != Answer::Late {
            self.known.insert(asked.name);
        }
        Ok(answer)
    }

    /// `Some(true)` if this owner or `successor` had the lock, with a live lease. `Some(false)` if
    /// that lease had ended, `None` if neither had the lock. If the claim `has_joined` a batch, a
    /// lock that the batch has freed counts as live.
    pub(crate) async fn release(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
        successor: Option<&str>,
        has_joined: bool,
    ) -> Result<Option<bool>, my::Error> {
        // A lease with the largest end is live anyway.
        let freed = if has_joined { FREED_TOGETHER } else { u64::MAX };
        let params = vec![
            freed.into(),
            asked.kind().into(),
            asked.name.as_str().into(),
            asked.owner.into(),
            successor.unwrap_or(asked.owner).into(),
        ];
        Ok(match connection.run(&self.release, params).await?.id {
            FREED => Some(true),
            LAPSED => Some(false),
            _ => None,
        })
    }

    /// Gives the lock to the owner of `asked`, or frees it if it is another client's turn. `None`
    /// if the previous owner does not have it, if the request came after its not-after time, or if
    /// the server is no primary.
    pub(crate) async fn transfer(
        &self,
        connection: &mut Connection,
        from: &Predecessor<'_>,
        asked: &LockRequest<'_>,
        policy: QueuePolicy,
    ) -> Result<Option<TransferAnswer>, my::Error> {
        let client = || Value::from(asked.client);
        let (statement, assigned) = match policy {
            QueuePolicy::TransferFirst => (
                &self.transfer,
                vec![asked.owner.into(), asked.label.into(), asked.lease_us.into()],
            ),
            _ => {
                let owner = asked.owner.into();
                let label = asked.label.into();
                let lease = asked.lease_us.into();
                let assigned =
                    vec![client(), client(), owner, client(), label, client(), client(), lease];
                (&self.transfer_or_free, assigned)
            }
        };
        let which = [
            asked.kind().into(),
            asked.name.as_str().into(),
            from.owner.into(),
            from.tokens.0.into(),
            from.tokens.1.into(),
            asked.not_after_us.into(),
        ];
        let params = assigned.into_iter().chain(which).collect();
        Ok(match connection.run(statement, params).await?.id {
            0 => None,
            FREED => Some(TransferAnswer::Freed),
            token => Some(TransferAnswer::Granted(token)),
        })
    }

    /// The token after it was raised to `floor`; `None` if the lock is not ours, or the server is
    /// no primary.
    pub(crate) async fn raise(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
        floor: u64,
    ) -> Result<Option<u64>, my::Error> {
        let params =
            vec![floor.into(), asked.kind().into(), asked.name.as_str().into(), asked.owner.into()];
        let token = connection.run(&self.raise, params).await?.id;
        Ok(Some(token).filter(|token| *token > 0))
    }

    /// Gives the grant of a former owner to the owner of `asked`, and returns its token. `None` if
    /// neither owner has the grant, if the request came after its not-after time, or if the server
    /// is no primary.
    pub(crate) async fn resume(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
        former: &GrantId,
    ) -> Result<Option<u64>, my::Error> {
        let Self { lock, .. } = self;
        let LockRequest { lease_us, not_after_us, .. } = asked;
        let [label, owner, from] = [asked.label, asked.owner, &former.owner.to_string()]
            .map(|text| literal(text.as_bytes()));
        // The owner is itself one of the two if an earlier reply was lost. The statement is not
        // prepared, because that takes a request, and few connections resume twice.
        let resume = format!(
            "UPDATE {lock} SET fence=LAST_INSERT_ID(fence),label={label},touched_us={NOW},\
             expires_us=GREATEST(expires_us,{NOW}+{lease_us}),owner={owner} \
             WHERE {} AND (owner={owner} OR owner={from} AND fence>={}) \
             AND expires_us>{NOW} AND {NOW}<={not_after_us} AND {WRITABLE}",
            this(asked.name),
            former.token.get()
        );
        let steps = connection.script(&resume).await?;
        Ok(steps.first().map(|step| step.outcome.id).filter(|token| *token > 0))
    }
}

/// The statement that takes a free row, or makes it.
fn acquire(lock: &str) -> String {
    // The server assigns from left to right, so the columns that depend on the old `owner` and
    // `expires_us` come before these two. The answer is the last value of LAST_INSERT_ID(). It
    // is the token, or how long the holder's lease still lasts, in µs and less than any token.
    // It is 0 if no row was touched, because the request is late or the server is no primary.
    // `fence` is the version: each grant raises it, and each renewal compares it.
    format!(
        "INSERT INTO {lock}(kind,name,owner,fence,expires_us,touched_us,acquired_us,label) \
         SELECT ?,?,?,LAST_INSERT_ID({NOW}),{NOW}+?,{NOW},{NOW},? FROM DUAL WHERE {NOW}<=? AND {WRITABLE} \
         ON DUPLICATE KEY UPDATE \
         fence=IF(expires_us<={NOW},LAST_INSERT_ID(GREATEST(fence+1,{NOW})),\
         IF(owner=?,LAST_INSERT_ID(fence),fence+0*LAST_INSERT_ID(\
         IF(expires_us>{NOW}+{LONGEST_US},{LONGEST_US},expires_us-{NOW})))),\
         acquired_us=IF(expires_us<={NOW},{NOW},acquired_us),\
         label=IF(expires_us<={NOW},?,label),\
         wanted_us=IF(expires_us<={NOW} AND wanted_by=?,0,wanted_us),\
         owner=IF(expires_us<={NOW},?,owner),\
         touched_us=IF(owner=?,{NOW},touched_us),\
         expires_us=IF(owner=?,GREATEST(expires_us,{NOW}+?),expires_us)"
    )
}

/// The statement that takes a free row which exists already.
fn acquire_known(lock: &str) -> String {
    // For a row that is there and most likely free: an update by primary key, whose condition has
    // all checks. The answer is the same, except that 0 leaves everything to `acquire`. It is 0 if
    // there is no row, if the row is our own, or if the request is late.
    format!(
        "UPDATE {lock} SET fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW})),owner=?,label=?,acquired_us={NOW},\
         touched_us={NOW},wanted_us=IF(wanted_by=?,0,wanted_us),expires_us={NOW}+? \
         WHERE kind=? AND name=? AND {NOW}<=? AND {WRITABLE} AND (expires_us<={NOW} OR 0*LAST_INSERT_ID(\
         IF(owner=?,0,IF(expires_us>{NOW}+{LONGEST_US},{LONGEST_US},expires_us-{NOW}))))"
    )
}

/// The statement that gives the row to another owner.
fn transfer(lock: &str) -> String {
    // All checks of the old `fence` and `expires_us` are in the condition, which the server
    // reads before it assigns anything.
    format!(
        "UPDATE {lock} SET fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW})),owner=?,label=?,acquired_us={NOW},\
         touched_us={NOW},expires_us={NOW}+? \
         WHERE kind=? AND name=? AND owner=? AND fence BETWEEN ? AND ? AND expires_us>{NOW} AND {NOW}<=? AND {WRITABLE}"
    )
}

/// The statement that gives the row to another owner, or frees it for another client.
fn transfer_or_free(lock: &str) -> String {
    // Like `transfer`, unless another client waits. The columns that say so are not assigned, so they
    // have the same values in all places.
    let others = format!("(wanted_us>{NOW} AND wanted_by<>?)");
    format!(
        "UPDATE {lock} SET \
         fence=IF({others},fence+0*LAST_INSERT_ID({FREED}),LAST_INSERT_ID(GREATEST(fence+1,{NOW}))),\
         owner=IF({others},'',?),label=IF({others},label,?),\
         acquired_us=IF({others},acquired_us,{NOW}),touched_us={NOW},expires_us=IF({others},0,{NOW}+?) \
         WHERE kind=? AND name=? AND owner=? AND fence BETWEEN ? AND ? AND expires_us>{NOW} AND {NOW}<=? AND {WRITABLE}"
    )
}

impl Answer {
    /// Reads the value of `LAST_INSERT_ID()` after an attempt.
    fn of(id: u64) -> Self {
        match id {
            0 => Self::Late,
            token if token >= LEAST_TOKEN => Self::Granted { token },
            left_us => Self::Busy { left: Some(Duration::from_micros(left_us)) },
        }
    }
}

const FREED: u64 = 2;
const LAPSED: u64 = 1;
/// Eleven days: no lease is longer, and each token is larger.
const LONGEST_US: u64 = 1_000_000_000_000;
pub(crate) const LONGEST: Duration = Duration::from_micros(LONGEST_US);
