//! Read/write locks and semaphores: a row for each holder, guarded by the row of the name.
//!
//! The statements have to see the same state, so they are one transaction. It is sent as one
//! request, because a client that stops in the middle must not leave the row locked.

use std::{num::NonZeroU32, time::Duration};

use lockkit_core::spi::Mode;
use mysql_async as my;

use super::record::{Answer, LockRequest};
use crate::{
    connection::Connection,
    handshake::value,
    sql::{NOW, WRITABLE, literal},
    tables::Tables,
};

/// How long a waiting writer keeps new readers away without asking again, and how long other
/// clients know that a client waits for a mutex. The client asks again when half of that time is
/// left.
pub(crate) const WANTED: Duration = Duration::from_secs(1);

const LATE: u64 = 0;
const BUSY: u64 = 1;
const GRANTED: u64 = 2;
const OURS: u64 = 3;
const MISMATCH: u64 = 4;

/// Makes the statements about such locks.
#[derive(Debug)]
pub(crate) struct HoldersSql {
    lock: String,
    holder: String,
}

impl HoldersSql {
    pub(crate) fn new(tables: &Tables) -> Self {
        let lock = tables.table("lock");
        let holder = tables.table("holder");
        Self { lock, holder }
    }

    pub(crate) async fn acquire(
        &self,
        connection: &mut Connection,
        mode: Mode,
        asked: &LockRequest<'_>,
    ) -> Result<Option<Answer>, my::Error> {
        let steps = connection.transaction(&self.acquisition(mode, asked)).await?;
        let read = || {
            let row = steps.iter().rev().find_map(|step| step.rows.first())?;
            Some(match value::<u64>(row, 0)? {
                LATE => Answer::Late,
                BUSY => {
                    Answer::Busy { left: value::<Option<u64>>(row, 2)?.map(Duration::from_micros) }
                }
                GRANTED | OURS => Answer::Granted { token: value(row, 1)? },
                MISMATCH => Answer::Mismatch { limit: value(row, 3)? },
                _ => return None,
            })
        };
        Ok(read())
    }

    /// Reads the time again once the row is locked, because the statement may have waited for the
    /// row.
    fn acquisition(&self, mode: Mode, asked: &LockRequest<'_>) -> String {
        let Self { lock, holder, .. } = self;
        let terms = Terms::of(mode, asked.waits);
        let Terms { letter, permits, limit, fits, wanted } = &terms;
        let kind = literal(asked.kind.as_bytes());
        let name = literal(asked.name.as_bytes());
        let owner = literal(asked.owner.as_bytes());
        let label = literal(asked.label.as_bytes());
        let lease = asked.lease_us;
        let not_after = asked.not_after_us;
        let this = format!("kind={kind} AND name={name}");
        let is_ours = format!("owner={owner}");
        format!(
            "INSERT INTO {lock}(kind,name,fence,touched_us) VALUES({kind},{name},{NOW},{NOW}) \
             ON DUPLICATE KEY UPDATE touched_us=GREATEST(touched_us,{NOW});\
             SELECT {NOW},fence,permits,wanted_us INTO @lockkit_now,@lockkit_fence,@lockkit_limit,@lockkit_wanted \
             FROM {lock} WHERE {this};\
             DELETE FROM {holder} WHERE {this} AND expires_us<=@lockkit_now;\
             SELECT COUNT(IF({is_ours},NULL,1)),COALESCE(SUM(IF({is_ours},0,permits)),0),\
             COALESCE(SUM(IF({is_ours},0,mode='x')),0),MIN(IF({is_ours},NULL,expires_us))-@lockkit_now,\
             MAX(IF({is_ours},fence,NULL)) \
             INTO @lockkit_others,@lockkit_used,@lockkit_writers,@lockkit_left,@lockkit_ours \
             FROM {holder} WHERE {this};\
             SET @lockkit_answer=CASE WHEN @lockkit_now>{not_after} OR NOT {WRITABLE} THEN {LATE} \
             WHEN @lockkit_ours IS NOT NULL THEN {OURS} \
             WHEN {limit}>0 AND @lockkit_others>0 AND @lockkit_limit<>{limit} THEN {MISMATCH} \
             WHEN {fits} THEN {GRANTED} ELSE {BUSY} END;\
             SET @lockkit_fence=CASE @lockkit_answer WHEN {GRANTED} THEN GREATEST(@lockkit_fence+1,@lockkit_now) \
             WHEN {OURS} THEN @lockkit_ours ELSE @lockkit_fence END;\
             INSERT INTO {holder}(kind,name,owner,mode,fence,permits,expires_us,acquired_us,label) \
             SELECT {kind},{name},{owner},'{letter}',@lockkit_fence,{permits},@lockkit_now+{lease},@lockkit_now,{label} \
             FROM DUAL WHERE @lockkit_answer IN({GRANTED},{OURS}) \
             ON DUPLICATE KEY UPDATE expires_us=GREATEST(expires_us,@lockkit_now+{lease});\
             UPDATE {lock} SET fence=GREATEST(fence,@lockkit_fence),\
             permits=IF(@lockkit_answer={GRANTED},{limit},permits),\
             wanted_us={wanted} WHERE {this};\
             SELECT CAST(@lockkit_answer AS UNSIGNED),CAST(@lockkit_fence AS UNSIGNED),\
             CAST(@lockkit_left AS UNSIGNED),CAST(@lockkit_limit AS UNSIGNED)"
        )
    }

    /// `Some(true)` if the hold was ours and live, `Some(false)` if its lease had ended, `None` if
    /// it was not there.
    pub(crate) async fn release(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
    ) -> Result<Option<bool>, my::Error> {
        let Self { holder, .. } = self;
        let kind = literal(asked.kind.as_bytes());
        let name = literal(asked.name.as_bytes());
        let ours = format!(
            "FROM {holder} WHERE kind={kind} AND name={name} AND owner={}",
            literal(asked.owner.as_bytes())
        );
        // A row whose lease ends between the two statements is still ours if it is there, because
        // the next grant would remove it first.
        let live = format!("SELECT CAST(COUNT(*) AS UNSIGNED) {ours} AND expires_us>{NOW}");
        let steps = connection.script(&format!("{live};DELETE {ours}")).await?;
        let [live, deleted] = steps.as_slice() else { return Ok(None) };
        let was_live =
            live.rows.first().and_then(|row| value::<u64>(row, 0)).is_some_and(|rows| rows > 0);
        Ok((deleted.outcome.affected > 0).then_some(was_live))
    }

    /// The token after it was raised to `floor`; `None` if the hold is not ours, or the server is
    /// no primary.
    pub(crate) async fn raise(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
        floor: u64,
    ) -> Result<Option<u64>, my::Error> {
        let steps = connection.transaction(&self.raising(asked, floor)).await?;
        let row = steps.iter().rev().find_map(|step| step.rows.first());
        Ok(row.and_then(|row| value::<u64>(row, 0)).filter(|token| *token > 0))
    }

    fn raising(&self, asked: &LockRequest<'_>, floor: u64) -> String {
        let Self { lock, holder, .. } = self;
        let kind = literal(asked.kind.as_bytes());
        let name = literal(asked.name.as_bytes());
        let this = format!("kind={kind} AND name={name}");
        let ours = format!(
            "{this} AND owner={} AND expires_us>@lockkit_now",
            literal(asked.owner.as_bytes())
        );
        // The rows are locked in the same order as by an acquisition.
        format!(
            "INSERT INTO {lock}(kind,name,fence,touched_us) VALUES({kind},{name},{NOW},{NOW}) \
             ON DUPLICATE KEY UPDATE touched_us=GREATEST(touched_us,{NOW});\
             SET @lockkit_now=IF({WRITABLE},{NOW},NULL);\
             UPDATE {holder} SET fence=GREATEST(fence,{floor}) WHERE {ours};\
             SELECT MAX(fence) INTO @lockkit_ours FROM {holder} WHERE {ours};\
             UPDATE {lock} SET fence=GREATEST(fence,COALESCE(@lockkit_ours,0)) WHERE {this};\
             SELECT CAST(COALESCE(@lockkit_ours,0) AS UNSIGNED)"
        )
    }
}

/// The effect of a mode on the statements.
struct Terms {
    letter: char,
    permits: u32,
    /// 0 if there is no limit.
    limit: u32,
    /// The condition for a grant.
    fits: String,
    /// The next value of `wanted_us`.
    wanted: String,
}

impl Terms {
    fn of(mode: Mode, waits: bool) -> Self {
        let kept = "wanted_us".to_owned();
        match mode {
            Mode::Permits { count, limit } => {
                let permits = count.get();
                let limit = limit.get();
                let fits = format!("@lockkit_used+{permits}<={limit}");
                Self { letter: 'p', permits, limit, fits, wanted: kept }
            }
            Mode::Shared => {
                let fits = "@lockkit_writers=0 AND @lockkit_wanted<=@lockkit_now".to_owned();
                Self { letter: 's', permits: 1, limit: 0, fits, wanted: kept }
            }
            _ => {
                let wants = if waits {
                    format!("GREATEST(wanted_us,@lockkit_now+{})", WANTED.as_micros())
                } else {
                    kept
                };
                let wanted = format!(
                    "CASE @lockkit_answer WHEN {GRANTED} THEN 0 WHEN {BUSY} THEN {wants} ELSE wanted_us END"
                );
                let fits = "@lockkit_others=0".to_owned();
                Self { letter: 'x', permits: NonZeroU32::MIN.get(), limit: 0, fits, wanted }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection commits these transactions as the last step. If they committed earlier, an
    /// error of a later statement would wrongly say that nothing was done.
    #[test]
    fn c5_an_acquisition_and_a_raised_token_do_not_commit_by_themselves() {
        let sql = HoldersSql::new(&Tables::new("lockkit"));
        let one = NonZeroU32::MIN;
        for mode in [Mode::Exclusive, Mode::Shared, Mode::Permits { count: one, limit: one }] {
            let kind = "k";
            let name = "n";
            let owner = "o";
            let label = "";
            let lease_us = 1;
            let not_after_us = 1;
            let asked = LockRequest {
                kind,
                name,
                owner,
                label,
                lease_us,
                not_after_us,
                waits: true,
                client: 1,
            };
            for script in [sql.acquisition(mode, &asked), sql.raising(&asked, 1)] {
                let words = ["COMMIT", "TRANSACTION", "autocommit"];
                assert!(words.iter().all(|word| !script.contains(word)), "{script}");
            }
        }
    }
}
