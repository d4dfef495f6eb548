//! Shows an operator who holds a lock, and frees it by force.

use std::time::Duration;

use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, LockName, OwnerId, Result,
    spi::{Holder, Inspection, Mode, Released},
};
use tokio::time::{Instant, sleep};

use super::{Store, sql::SIGN};
use crate::{
    channel::Checkout,
    connection::Killed,
    error::{self, Phase},
    handshake::value,
    names,
    server::Server,
    sql::{NOW, is_owner, this},
};

/// How long a holder needs to notice an eviction. It asks every second whether the lock is still
/// its own, and gives up the row if it is not.
const NOTICED: Duration = Duration::from_millis(1500);
/// How long a server needs to end a connection.
const KILLED: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// MySQL and MariaDB have different words for it.
const SHARED_NOWAIT: &str = "/*!80001 FOR SHARE NOWAIT*//*M! LOCK IN SHARE MODE NOWAIT*/";
/// The server's error for a `KILL` of another user's connection.
const NOT_OWNER: u16 = 1095;

/// The condition that the holder is alive, on the connection on which it was granted.
pub(super) fn is_alive() -> String {
    format!(
        "(owner<>'' AND IS_USED_LOCK(CONVERT(CONCAT('{SIGN}',owner,'.',thread) USING utf8mb4))<=>thread)"
    )
}

/// The last grant of a lock.
struct Last {
    token: u64,
    owner: Option<OwnerId>,
    label: Option<String>,
    age: Duration,
    run: (String, u64),
    thread: u64,
    /// Whether the holder is alive, on the connection on which it was granted.
    is_alive: bool,
}

impl Store {
    /// The row lock decides who holds the name, and a question about it is a request for it. So a
    /// lock that is free is taken for the time of one statement.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(super) async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let mut side = self.pool.get_side(self.pool.config().connect_timeout).await?;
        // A demoted server does not know any more who has the lock.
        self.pool.ask_time(&mut side).await?;
        if !self.is_locked(&mut side, name).await? {
            return Ok(Inspection::default());
        }
        let holder = Holder::new(Mode::Exclusive);
        let holder = match self.last(&mut side, name).await? {
            Some(Last { token, owner: Some(owner), label, age, is_alive: true, .. }) => {
                holder.with_grant(owner, FencingToken::new(token)).with_label(label).with_age(age)
            }
            // The lock was freed by force and its holder has not noticed yet, or a client that uses
            // no tokens has locked the row.
            _ => holder,
        };
        Ok(Inspection::new(vec![holder], None))
    }

    /// The names whose holder is alive. A row does not show who waits for it. A test whether a row
    /// is locked would take those that are free.
    ///
    /// # Errors
    /// Returns the server's error.
    pub(super) async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        names::held(&self.pool, &self.sql.fence, &is_alive(), kind, prefix).await
    }

    /// Frees the grant with this token. Its holder gives up the row when it notices that, or else
    /// its connection is ended.
    ///
    /// # Errors
    /// Returns the server's error, or [`ErrorKind::Unavailable`] if the row stays locked.
    pub(super) async fn force_release(&self, name: &LockName, token: u64) -> Result<Released> {
        let what = "freeing by force";
        let mut side = self.pool.get_side(self.pool.config().connect_timeout).await?;
        // A demoted server does not know any more who has the lock.
        self.pool.ask_time(&mut side).await?;
        if !self.is_locked(&mut side, name).await? {
            return Ok(Released::NotHeld);
        }
        let last = self.last(&mut side, name).await?;
        let Some(last) = last.filter(|last| last.token == token && last.is_alive) else {
            return Ok(Released::NotHeld);
        };
        let evict = format!(
            "UPDATE {} SET owner='',open_us=0 WHERE {} AND fence={token} AND owner<>''",
            self.sql.fence,
            this(name)
        );
        let steps = self.pool.checked(side.script(&evict).await, Phase::Write, what)?;
        if steps.first().is_none_or(|step| step.outcome.affected == 0) {
            return Ok(Released::NotHeld);
        }
        let given_up = self.see_it_given_up(&mut side, name, &last).await;
        // Whatever the result is, the next waiter may wait in the server now.
        self.waiters.call_first(name);
        given_up.map_err(void)?;
        Ok(Released::Freed)
    }

    /// Waits until the row of a void grant is free, and ends the connection of its holder if
    /// necessary.
    async fn see_it_given_up(
        &self,
        side: &mut Checkout,
        name: &LockName,
        last: &Last,
    ) -> Result<()> {
        if self.is_given_up(side, name, last.token, NOTICED).await? {
            return Ok(());
        }
        // The holder hangs, or a long statement runs in its transaction.
        self.end(side, last).await?;
        if self.is_given_up(side, name, last.token, KILLED).await? {
            return Ok(());
        }
        let reason = "the row was still locked at the last look, by a client that is not lockkit, \
                      or by a transaction that the server rolls back; try again";
        Err(error::ours(ErrorKind::Unavailable, reason))
    }

    /// Whether the server does not know a connection any more that broke just now, without an
    /// answer. Most likely, such a connection had ended before its last use, and the lock with it.
    /// False if that is not known.
    pub(super) async fn had_gone(&self, server: &Server, patience: Duration) -> bool {
        let Ok(mut side) = self.pool.get_side(patience).await else { return false };
        if !side.server().is_same_run(server) {
            return side.server().is_later_run(server);
        }
        matches!(side.kill(server.thread).await, Ok(Killed::WasGone))
    }

    /// Whether an operator has freed the grant with this token. False also if that is not known.
    pub(super) async fn is_evicted(&self, name: &LockName, token: u64) -> bool {
        let Ok(mut side) = self.pool.get_side(self.pool.config().connect_timeout).await else {
            return false;
        };
        let last = self.last(&mut side, name).await;
        last.is_ok_and(|last| last.is_none_or(|last| last.token != token || last.owner.is_none()))
    }

    async fn is_given_up(
        &self,
        side: &mut Checkout,
        name: &LockName,
        token: u64,
        patience: Duration,
    ) -> Result<bool> {
        let started = Instant::now();
        loop {
            if !self.is_locked(side, name).await? {
                return Ok(true);
            }
            // Another owner has the lock now.
            if self.last(side, name).await?.is_none_or(|last| last.token != token) {
                return Ok(true);
            }
            if started.elapsed() >= patience {
                return Ok(false);
            }
            sleep(PAUSE).await;
        }
    }

    /// Ends the connection of a holder, if it still belongs to that grant.
    async fn end(&self, side: &mut Checkout, holder: &Last) -> Result<()> {
        if !side.server().is_run(&holder.run) {
            return Ok(());
        }
        // A connection that was granted another lock since then does not have this one any more.
        let Some(owner) = holder.owner else { return Ok(()) };
        let sign = format!("{SIGN}{owner}.{}", holder.thread);
        let question = format!("SELECT 1 FROM DUAL WHERE {}", is_owner(&sign, holder.thread));
        let steps = self.pool.checked(
            side.script(&question).await,
            Phase::Read,
            "looking up the holder's connection",
        )?;
        if steps.first().is_none_or(|step| step.rows.is_empty()) {
            return Ok(());
        }
        side.kill(holder.thread).await.map(drop).map_err(|error| {
            let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
            if source.and_then(error::code) != Some(NOT_OWNER) {
                return error;
            }
            let reason = format!(
                "the holder does not react, and this database user may not end its connection {}, \
                 which belongs to another user; connect as that user, or run: KILL {}",
                holder.thread, holder.thread
            );
            error::ours(ErrorKind::PermissionDenied, reason).with_source(error)
        })
    }

    /// Whether a transaction has locked the row.
    async fn is_locked(&self, side: &mut Checkout, name: &LockName) -> Result<bool> {
        // The lock is shared, so that two clients that look do not take each other for the holder.
        // The statement is not prepared, because each name gives another text.
        let probe = format!("SELECT 1 FROM {} WHERE {} {SHARED_NOWAIT}", self.sql.row, this(name));
        match side.script(&probe).await {
            Ok(_) => Ok(false),
            Err(error) if error::is_taken(&error) => Ok(true),
            Err(error) => self.pool.checked(Err(error), Phase::Read, "checking the row's lock"),
        }
    }

    async fn last(&self, side: &mut Checkout, name: &LockName) -> Result<Option<Last>> {
        let what = "reading the last token";
        let question = format!(
            "SELECT fence,owner,label,{NOW}-CAST(acquired_us AS SIGNED),server,started_us,thread,\
             {} FROM {} WHERE {}",
            is_alive(),
            self.sql.fence,
            this(name)
        );
        let steps = self.pool.checked(side.script(&question).await, Phase::Read, what)?;
        let Some(row) = steps.first().and_then(|step| step.rows.first()) else { return Ok(None) };
        let read = || {
            let label = Some(value::<Vec<u8>>(row, 2)?).filter(|label| !label.is_empty());
            Some(Last {
                token: value(row, 0)?,
                owner: value::<String>(row, 1)?.parse().ok(),
                label: label.map(|label| String::from_utf8_lossy(&label).into_owned()),
                age: Duration::from_micros(u64::try_from(value::<i64>(row, 3)?).unwrap_or(0)),
                run: (value(row, 4)?, value(row, 5)?),
                thread: value(row, 6)?,
                is_alive: value::<u8>(row, 7)? == 1,
            })
        };
        read().map(Some).ok_or_else(|| error::nonsense(what))
    }
}

/// The error for a grant that is void for certain, while it is not known whether its row is free. A
/// second request would hear from the server that there is no such grant.
fn void(error: Error) -> Error {
    let reason = format!("the grant is void, but its row may still be locked: {}", error.context());
    error::ours(error.kind(), reason)
        .with_status(error.status())
        .with_source(error)
        .with_outcome_unknown()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c14_the_error_for_a_void_grant_says_that_its_row_may_be_locked() {
        let error = void(error::ours(ErrorKind::PermissionDenied, "run: KILL 7"));
        assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::PermissionDenied, true));
        assert!(
            error.context().starts_with("the grant is void, ")
                && error.context().ends_with("KILL 7"),
            "{error}"
        );
    }
}
