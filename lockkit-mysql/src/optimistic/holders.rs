//! Read/write locks and semaphores: a row for each holder, beside the row of the name.
//!
//! A grant is two statements in one transaction and one request. The first locks the row of the
//! name. If the holders leave room, it inserts a candidate: a row with `expires_us=0`. The candidate
//! keeps the version (`fence` of the name) of the state that the statement saw. The second statement
//! makes the candidate a holder and raises the version, if the version is still the same.
//!
//! - The comparison is needed because a server may read the holders before it waits for the row of
//!   the name. In between, another claim may get a grant.
//! - Galera may undo the first statement after its answer. Then the second finds no candidate.
//! - Each grant changes the row of the name. So of two grants on two Galera nodes, one fails.
//! - A holder counts until its row is deleted, even if its lease has ended. A renewal counts from the
//!   start of its statement, so a late one may still extend that lease. No renewal extends a
//!   candidate.
//! - A claim that resumes a grant changes the owner of a holder, and raises the version. A server
//!   that reads the holders meanwhile may find that holder under neither owner.

#[cfg(test)]
mod tests;

use std::slice;

use lockkit_core::spi::{GrantId, Mode};
use mysql_async::{self as my, Value};

use super::{
    known::KnownRows,
    look::{LookSql, looks as read_looks},
    record::{Answer, LockRequest},
};
use crate::{
    connection::Connection,
    handshake::value,
    sql::{NOW, WRITABLE, literal},
    tables::Tables,
};

/// How often a claim asks again at once when another grant was faster.
const RACES: u32 = 4;

/// Makes the statements about such locks.
#[derive(Debug)]
pub(crate) struct HoldersSql {
    lock: String,
    holder: String,
    known: KnownRows,
    release: String,
    remove: String,
    raise: String,
}

impl HoldersSql {
    pub(crate) fn new(tables: &Tables) -> Self {
        let lock = tables.table("lock");
        let holder = tables.table("holder");
        let remove = format!("DELETE FROM {holder} WHERE kind=? AND name=? AND owner=?");
        let release = format!("{remove} AND expires_us>{NOW}");
        // The version is never below a holder's token.
        let raise = format!(
            "UPDATE {} SET l.fence=GREATEST(l.fence,?),h.fence=LAST_INSERT_ID(GREATEST(h.fence,?)) \
             WHERE l.kind=? AND l.name=? AND h.owner=? AND h.expires_us>{NOW} AND {WRITABLE}",
            both(&lock, &holder)
        );
        Self { lock, holder, known: KnownRows::default(), release, remove, raise }
    }

    /// Asks for a grant. The answer is `None` if it makes no sense.
    pub(crate) async fn acquire(
        &self,
        connection: &mut Connection,
        looks: &LookSql,
        mode: Mode,
        asked: &LockRequest<'_>,
    ) -> Result<Option<Answer>, my::Error> {
        let mut is_prepared = self.known.contains(asked.name);
        for _ in 0..RACES {
            let mut script = self.candidate(mode, asked) + ";" + &self.grant(mode, asked);
            if !is_prepared {
                script = self.preparation(asked) + ";" + &script;
            }
            let steps = connection.short_transaction(&script).await?;
            let [.., candidate, grant] = steps.as_slice() else { return Ok(None) };
            let token = grant.outcome.id.max(candidate.outcome.id);
            if token > 0 {
                self.known.insert(asked.name);
                return Ok(Some(Answer::Granted { token }));
            }
            if candidate.outcome.affected > 0 {
                // Another grant came between the two statements. The preparation locks the row of
                // the name, so that this can't happen again.
                is_prepared = false;
                continue;
            }
            match self.refusal(connection, looks, mode, asked).await? {
                Some(Refusal::For(answer)) => return Ok(Some(answer)),
                Some(Refusal::Outdated) => is_prepared = false,
                None => return Ok(None),
            }
        }
        // The last round may have left a candidate.
        connection.run(&self.remove, key(asked)).await?;
        Ok(Some(Answer::Locked))
    }

    /// Makes the row of the name and locks it. Removes the holders whose lease has ended, and the
    /// candidates that came to nothing.
    fn preparation(&self, asked: &LockRequest<'_>) -> String {
        let Self { lock, holder, .. } = self;
        let Request { kind, name, .. } = Request::of(asked);
        format!(
            "INSERT INTO {lock}(kind,name,fence,touched_us) VALUES({kind},{name},{NOW},{NOW}) \
             ON DUPLICATE KEY UPDATE touched_us=GREATEST(touched_us,{NOW});\
             DELETE FROM {holder} WHERE kind={kind} AND name={name} AND expires_us<={NOW}"
        )
    }

    /// Inserts a candidate. If the request of an earlier attempt was applied, its holder gets a
    /// longer lease instead, and the answer is its token.
    fn candidate(&self, mode: Mode, asked: &LockRequest<'_>) -> String {
        let Self { lock, holder, .. } = self;
        let Request { kind, name, owner, label, lease, not_after } = Request::of(asked);
        let others = format!(
            "FROM {holder} o FORCE INDEX(PRIMARY) WHERE o.kind=l.kind AND o.name=l.name \
             AND o.owner<>{owner} AND o.expires_us>0"
        );
        let (letter, permits) = (letter(mode), permits(mode));
        let fits = match mode {
            // Holders with another limit count as if they had all permits.
            Mode::Permits { limit, .. } => format!(
                "(SELECT COALESCE(SUM(IF(l.permits={limit},o.permits,{limit})),0) {others})+{permits}<={limit}"
            ),
            Mode::Shared => format!(
                "(SELECT COUNT(*) {others} AND o.mode='x')=0 AND (l.wanted_us<={NOW} OR \
                 (SELECT COUNT(*) FROM {holder} o WHERE o.kind=l.kind AND o.name=l.name \
                 AND o.owner={owner} AND o.expires_us>{NOW})>0)"
            ),
            _ => format!("(SELECT COUNT(*) {others})=0"),
        };
        format!(
            "INSERT INTO {holder}(kind,name,owner,mode,fence,permits,expires_us,acquired_us,label) \
             SELECT {kind},{name},{owner},'{letter}',\
             (SELECT v.fence FROM {lock} v FORCE INDEX(PRIMARY) WHERE v.kind=l.kind AND v.name=l.name),\
             {permits},0,{NOW},{label} FROM {lock} l FORCE INDEX(PRIMARY) \
             WHERE l.kind={kind} AND l.name={name} AND {NOW}<={not_after} AND {WRITABLE} AND {fits} FOR UPDATE \
             ON DUPLICATE KEY UPDATE \
             fence=IF({holder}.expires_us>{NOW},LAST_INSERT_ID({holder}.fence),{holder}.fence),\
             expires_us=IF({holder}.expires_us>{NOW},GREATEST({holder}.expires_us,{NOW}+{lease}),{holder}.expires_us)"
        )
    }

    /// Makes the candidate a holder if the version is still the one that it saw.
    fn grant(&self, mode: Mode, asked: &LockRequest<'_>) -> String {
        let Request { kind, name, owner, lease, not_after, .. } = Request::of(asked);
        let also = match mode {
            Mode::Permits { limit, .. } => format!("l.permits={limit},"),
            Mode::Shared => String::new(),
            _ => "l.wanted_us=0,".to_owned(),
        };
        // Both versions are the same before, and so both results are, in whatever order the server
        // changes the tables.
        format!(
            "UPDATE {} SET l.fence=LAST_INSERT_ID(GREATEST(l.fence+1,{NOW})),{also}l.touched_us={NOW},\
             h.fence=GREATEST(h.fence+1,{NOW}),h.acquired_us={NOW},h.expires_us={NOW}+{lease} \
             WHERE l.kind={kind} AND l.name={name} AND h.owner={owner} AND h.expires_us=0 \
             AND h.fence=l.fence AND {NOW}<={not_after} AND {WRITABLE}",
            both(&self.lock, &self.holder)
        )
    }

    /// Asks why there was no grant.
    async fn refusal(
        &self,
        connection: &mut Connection,
        looks: &LookSql,
        mode: Mode,
        asked: &LockRequest<'_>,
    ) -> Result<Option<Refusal>, my::Error> {
        let names = slice::from_ref(asked.name);
        // FOR UPDATE locks nothing here. A proxy that sends reads to replicas does not send such a
        // request there.
        let in_time = format!("SELECT {NOW}<={} AND {WRITABLE} FOR UPDATE", asked.not_after_us);
        let script = format!("{in_time};{}", looks.question(names));
        let steps = connection.script(&script).await?;
        let [in_time, seen, ..] = steps.as_slice() else { return Ok(None) };
        let in_time = in_time.rows.first().and_then(|row| value::<bool>(row, 0));
        let seen = read_looks(names, &seen.rows).into_iter().next().flatten();
        let (Some(in_time), Some(look)) = (in_time, seen) else { return Ok(None) };
        Ok(Some(match mode {
            _ if !in_time => Refusal::For(Answer::Late),
            Mode::Permits { limit, .. }
                if !look.holders.is_empty() && look.limit != limit.get() =>
            {
                Refusal::For(Answer::Mismatch { limit: look.limit })
            }
            mode if look.fits(mode) => Refusal::Outdated,
            _ => Refusal::For(Answer::Busy { left: look.next_end() }),
        }))
    }

    /// `Some(true)` if the hold was ours and live, `Some(false)` if its lease had ended, `None` if
    /// it was not there.
    pub(crate) async fn release(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
    ) -> Result<Option<bool>, my::Error> {
        for (statement, was_live) in [(&self.release, true), (&self.remove, false)] {
            if connection.run(statement, key(asked)).await?.affected > 0 {
                return Ok(Some(was_live));
            }
        }
        Ok(None)
    }

    /// The token after it was raised to `floor`; `None` if the hold is not ours, or the server is
    /// no primary.
    pub(crate) async fn raise(
        &self,
        connection: &mut Connection,
        asked: &LockRequest<'_>,
        floor: u64,
    ) -> Result<Option<u64>, my::Error> {
        let params = [floor.into(), floor.into()].into_iter().chain(key(asked)).collect();
        let token = connection.run(&self.raise, params).await?.id;
        Ok(Some(token).filter(|token| *token > 0))
    }

    /// Gives the grant of a former owner to the owner of `asked`, and returns its token. `None` if
    /// neither owner has the grant in this mode, if the request came after its not-after time, or
    /// if the server is no primary.
    pub(crate) async fn resume(
        &self,
        connection: &mut Connection,
        mode: Mode,
        asked: &LockRequest<'_>,
        former: &GrantId,
    ) -> Result<Option<u64>, my::Error> {
        let LockRequest { lease_us, not_after_us, .. } = asked;
        let former_owner = former.owner.to_string();
        let [kind, name, label, owner, from] =
            [asked.kind(), asked.name.as_str(), asked.label, asked.owner, &former_owner]
                .map(|text| literal(text.as_bytes()));
        // The owner is itself one of the two if an earlier reply was lost. The statement is not
        // prepared, because that takes a request, and few connections resume twice.
        let resume = format!(
            "UPDATE {} SET l.fence=GREATEST(l.fence+1,{NOW}),l.touched_us={NOW},\
             h.fence=LAST_INSERT_ID(h.fence),h.label={label},\
             h.expires_us=GREATEST(h.expires_us,{NOW}+{lease_us}),h.owner={owner} \
             WHERE l.kind={kind} AND l.name={name} AND l.permits={} AND h.mode='{}' AND h.permits={} \
             AND h.owner IN({owner},{from}) AND (h.owner={owner} OR h.fence>={}) \
             AND h.expires_us>{NOW} AND {NOW}<={not_after_us} AND {WRITABLE}",
            both(&self.lock, &self.holder),
            limit(mode),
            letter(mode),
            permits(mode),
            former.token.get()
        );
        let steps = connection.script(&resume).await?;
        Ok(steps.first().map(|step| step.outcome.id).filter(|token| *token > 0))
    }
}

/// Why there was no grant.
#[derive(Debug)]
enum Refusal {
    For(Answer),
    /// There is room by now, or the statements need their preparation.
    Outdated,
}

/// A request in the form of SQL.
struct Request {
    kind: String,
    name: String,
    owner: String,
    label: String,
    lease: u64,
    not_after: u64,
}

impl Request {
    fn of(asked: &LockRequest<'_>) -> Self {
        let text = |text: &str| literal(text.as_bytes());
        Self {
            kind: text(asked.kind()),
            name: text(asked.name.as_str()),
            owner: text(asked.owner),
            label: text(asked.label),
            lease: asked.lease_us,
            not_after: asked.not_after_us,
        }
    }
}

/// The primary key of the claim's holder.
fn key(asked: &LockRequest<'_>) -> Vec<Value> {
    vec![asked.kind().into(), asked.name.as_str().into(), asked.owner.into()]
}

/// Both tables, as one statement changes them.
fn both(lock: &str, holder: &str) -> String {
    format!(
        "{lock} l FORCE INDEX(PRIMARY) STRAIGHT_JOIN {holder} h FORCE INDEX(PRIMARY) \
         ON h.kind=l.kind AND h.name=l.name"
    )
}

fn letter(mode: Mode) -> char {
    match mode {
        Mode::Permits { .. } => 'p',
        Mode::Shared => 's',
        _ => 'x',
    }
}

fn permits(mode: Mode) -> u32 {
    if let Mode::Permits { count, .. } = mode { count.get() } else { 1 }
}

/// The number of permits in the row of the name.
fn limit(mode: Mode) -> u32 {
    if let Mode::Permits { limit, .. } = mode { limit.get() } else { 0 }
}
