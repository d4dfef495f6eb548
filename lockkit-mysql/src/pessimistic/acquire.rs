//! The steps from a row lock to a grant.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Clock, ErrorKind, Result, Tick};
use mysql_async as my;

use super::{
    Store,
    row_lock::{PingOutcome, RowLock},
    sql::Key,
};
use crate::{
    channel::Checkout,
    connection::{Session, Step},
    error::{self, Phase},
    handshake::value,
    server::Server,
    sql::LEAST_TOKEN,
};

/// How often a statement that lost a race is sent again at once.
pub(super) const RACES: u32 = 4;
/// The index of the answer that has the row, and the number of answers before it that make the row.
const ROW: usize = 1;
const CREATED: usize = 2;

/// A locked row, before there is a grant.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) hold: RowLock,
    /// How long the lease of a dead holder may still last, by that holder's own clock.
    pub(super) open: Duration,
}

impl Store {
    /// Locks the row of a name. Makes the row if it is missing, because a missing row can't be
    /// locked. `None` if another claim has the row for longer than `patience`. Without a
    /// `patience`, `None` if another claim has the row now.
    ///
    /// # Errors
    /// The outcome is unknown if the connection broke. Then the server may have locked the row,
    /// until it notices that.
    ///
    /// # Cancel safety
    /// A call that is dropped midway closes the connection and kills the statement.
    pub(super) async fn lock(
        self: &Arc<Self>,
        mut connection: Checkout,
        key: &Arc<Key>,
        patience: Option<Duration>,
    ) -> Result<Option<Locked>> {
        let lock = key.lock(&self.sql, patience);
        let session = key.session(patience, connection.session());
        let mut script = lock.clone();
        let mut row = ROW;
        if session != connection.session() {
            let Session { idle_s, lock_wait_s } = session;
            let set = format!(
                "SET SESSION wait_timeout={idle_s},innodb_lock_wait_timeout={lock_wait_s};"
            );
            (script, row) = (set + &lock, ROW + 1);
            // Set also if the row is taken. After any other error, and after a drop midway, the
            // connection is not used again.
            connection.set_session(session);
        }
        for _ in 0..RACES {
            let sent = Clock::Boot.now();
            match connection.script(&script).await {
                Ok(steps) => {
                    if let Some(Last { token, thread, open }) = last(&steps, row) {
                        connection.set_thread(thread);
                        if !connection.in_transaction() {
                            // The connection has the sign, so it is not used again.
                            drop(connection.give_up());
                            return Err(not_proven(
                                "the server reports that there is no transaction",
                            ));
                        }
                        let hold = RowLock::new(
                            Arc::clone(self),
                            Arc::clone(key),
                            connection,
                            token,
                            sent,
                        );
                        return Ok(Some(Locked { hold, open }));
                    }
                    (script, row) = (key.create(&self.sql) + &lock, ROW + CREATED);
                }
                Err(error) if error::is_taken(&error) => break,
                Err(error) if error::is_race(&error) => {
                    (script, row) = (format!("ROLLBACK;{lock}"), ROW + 1);
                }
                // The effects of the statement end with the connection, which is not given back.
                // But the server may not notice for a while that the connection is gone.
                Err(error) => {
                    return self.pool.checked(Err(error), Phase::Write, "locking the row");
                }
            }
        }
        self.pool.checked(connection.script("ROLLBACK").await, Phase::Read, "unlocking the row")?;
        Ok(None)
    }

    /// Raises the token of a name whose row `hold` has locked. This happens on another connection.
    /// Inside the lock's transaction, a rollback would undo it, and the token would be given twice.
    /// The token is raised only while the server still has the lock's connection, by its sign. It
    /// is raised only from the value that was read under the lock, so that there was no grant
    /// since.
    ///
    /// # Errors
    /// Returns the server's error, or [`ErrorKind::Unavailable`] if the row was lost meanwhile. A
    /// late request changes nothing, or it only makes the next claim read the token once more.
    pub(super) async fn bump(
        &self,
        key: &Key,
        hold: &mut RowLock,
        patience: Duration,
    ) -> Result<()> {
        let what = "raising the token";
        let mut side = self.pool.get_side(patience).await?;
        for _ in 0..RACES {
            let token = self.try_bump(&mut side, key, hold.server(), hold.last_token()).await?;
            if token >= LEAST_TOKEN {
                hold.set_token(token);
                return Ok(());
            }
            if token > 0 {
                return Err(error::nonsense(what));
            }
            // While the row is ours, only its previous holder can have raised the token. When the
            // connection of that holder ends, the server frees the row first, and removes the sign
            // a moment later.
            let reread = self.pool.checked(hold.reread().await, Phase::Read, what)?;
            // With a strict lease, the next attempt has to wait for that holder's lease.
            if !reread || self.pool.config().strict_lease {
                break;
            }
        }
        self.pool.ask_time(&mut side).await?;
        Err(not_proven("the connection broke, or another client raised the token"))
    }

    /// The new token, or 0 if `last` is not the last one, or if the lock's connection is gone.
    pub(super) async fn try_bump(
        &self,
        side: &mut Checkout,
        key: &Key,
        server: &Server,
        last: u64,
    ) -> Result<u64> {
        let mut races = 0;
        let bump = if last == 0 { &self.sql.first_bump } else { &self.sql.bump };
        loop {
            let answer: Result<_, my::Error> =
                side.run(bump, key.bump(&self.sql, server, last)).await;
            match answer {
                Err(error) if error::is_race(&error) && races < RACES => races += 1,
                answer => {
                    return Ok(self.pool.checked(answer, Phase::Read, "raising the token")?.id);
                }
            }
        }
    }

    /// Asks the lock's connection once more whether the hold is still there, with its token.
    /// Returns when it asked.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if there is no proof. Then the hold can't be used.
    pub(super) async fn prove(&self, hold: &mut RowLock) -> Result<Tick> {
        let life = self.pool.checked(hold.ping().await, Phase::Read, "checking the row's lock")?;
        match life {
            PingOutcome::Alive { at } => Ok(at),
            PingOutcome::Evicted => Err(not_proven("another client raised the token")),
            PingOutcome::Gone => Err(not_proven("the connection broke")),
        }
    }
}

pub(super) fn not_proven(reason: &str) -> lockkit_core::Error {
    error::ours(
        ErrorKind::Unavailable,
        format!("locked the row, but could not prove the grant: {reason}; try again"),
    )
}

/// The error of a release whose transaction may have ended or not.
pub(super) fn not_known() -> lockkit_core::Error {
    let reason = "the connection broke while lockkit ended the transaction; the lock is free now, \
                  or after its lease; check whether the statements in its transaction were \
                  committed";
    error::ours(ErrorKind::Unavailable, reason).with_outcome_unknown()
}

/// The values that the last holder left.
struct Last {
    token: u64,
    /// The connection that has the row now.
    thread: u64,
    open: Duration,
}

/// `None` if there was no row to lock.
fn last(steps: &[Step], row: usize) -> Option<Last> {
    let locked = steps.get(row)?.rows.first()?;
    let token = value::<Option<u64>>(locked, 1).flatten().unwrap_or(0);
    let thread = value(locked, 2)?;
    let left = steps.get(row + 1).and_then(|step| step.rows.first());
    let open = left.and_then(|left| {
        let open_us = value::<u64>(left, 0)?;
        let free_for = value::<i64>(left, 1)?;
        Some(open_us.saturating_sub(u64::try_from(free_for).unwrap_or(0)))
    });
    Some(Last { token, thread, open: Duration::from_micros(open.unwrap_or(0)) })
}

/// When a lease that may be open now has ended for sure.
pub(super) fn end_of(open: Duration) -> Tick {
    Clock::Boot.now().after(open)
}
