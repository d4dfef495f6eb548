//! Implements the claim of one owner.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Clock, FencingToken, Result, Tick,
    spi::{Attempt, Claim, ClaimSpec, Grant, Lease, LossReason, Released, RenewalOutcome, Wait},
};
use rusqlite::{OptionalExtension as _, Transaction, params};

use crate::database::Database;

#[derive(Debug)]
pub(crate) struct SqliteClaim {
    database: Arc<Database>,
    op_timeout: Duration,
    row: Arc<Row>,
}

/// The row of this claim, once the claim is granted.
#[derive(Debug)]
struct Row {
    kind: &'static str,
    name: String,
    owner: String,
    label: Option<Arc<str>>,
    lease: Duration,
    lease_us: i64,
}

impl SqliteClaim {
    pub(crate) fn new(database: Arc<Database>, spec: ClaimSpec) -> Self {
        let row = Row {
            kind: spec.name.kind().as_str(),
            name: spec.name.as_str().to_owned(),
            owner: spec.owner.to_string(),
            label: spec.label,
            lease: spec.ttl,
            lease_us: i64::try_from(spec.ttl.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX / 2),
        };
        Self { database, op_timeout: spec.op_timeout, row: Arc::new(row) }
    }
}

#[async_trait]
impl Claim for SqliteClaim {
    async fn attempt(&mut self, _wait: Wait) -> Result<Attempt> {
        let row = Arc::clone(&self.row);
        let not_after = Clock::Boot.now().after(self.op_timeout);
        self.database.write(not_after, move |file, now| row.attempt(file, now)).await
    }

    async fn renew(&mut self, _: Option<Duration>) -> Result<RenewalOutcome> {
        let row = Arc::clone(&self.row);
        self.database.write(Tick::NEVER, move |file, now| row.keep_alive(file, now)).await
    }

    async fn release(&mut self) -> Result<Released> {
        let row = Arc::clone(&self.row);
        self.database.write(Tick::NEVER, move |file, now| row.release(file, now)).await
    }
}

impl Row {
    fn attempt(&self, file: &Transaction<'_>, now: i64) -> rusqlite::Result<Attempt> {
        // This deletes the ended rows of all names, because no other code removes the rows of dead
        // holders.
        file.execute("DELETE FROM lockkit_locks WHERE expires_us < ?1", [now])?;
        let held = file
            .query_row(
                "SELECT owner, token, expires_us FROM lockkit_locks WHERE kind = ?1 AND name = ?2",
                [self.kind, &self.name],
                |row| Ok((row.get::<_, String>(0)?, row.get(1)?, row.get::<_, i64>(2)?)),
            )
            .optional()?;
        match held {
            // An earlier attempt of this claim was granted, and its reply was lost.
            Some((owner, token, _)) if owner == self.owner => {
                self.keep_alive(file, now)?;
                Ok(self.granted(token))
            }
            Some((_, _, expires_us)) => {
                let free_in = u64::try_from(expires_us.saturating_sub(now)).unwrap_or_default();
                Ok(Attempt::Busy {
                    queued: false,
                    retry_after: Some(Duration::from_micros(free_in + 1)),
                })
            }
            None => self.insert(file, now),
        }
    }

    fn insert(&self, file: &Transaction<'_>, now: i64) -> rusqlite::Result<Attempt> {
        // The statement inserts the row of the counter again if another program has emptied the
        // table.
        let token = file.query_row(
            "INSERT INTO lockkit_store (id, version, last_token) VALUES (1, 1, ?1)
             ON CONFLICT (id) DO UPDATE SET last_token = max(last_token + 1, excluded.last_token)
             RETURNING last_token",
            [now],
            |row| row.get(0),
        )?;
        file.execute(
            "INSERT INTO lockkit_locks (kind, name, owner, token, label, granted_us, expires_us)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6 + ?7)",
            params![
                self.kind,
                self.name,
                self.owner,
                token,
                self.label.as_deref(),
                now,
                self.lease_us
            ],
        )?;
        Ok(self.granted(token))
    }

    fn granted(&self, token: i64) -> Attempt {
        let token = FencingToken::new(token.cast_unsigned());
        Attempt::Granted(Grant::new(token, Lease::For(self.lease)))
    }

    /// Uses an `UPDATE`, which never creates a deleted row again.
    fn keep_alive(&self, file: &Transaction<'_>, now: i64) -> rusqlite::Result<RenewalOutcome> {
        let renewed = file.execute(
            "UPDATE lockkit_locks SET expires_us = max(expires_us, ?4 + ?5)
             WHERE kind = ?1 AND name = ?2 AND owner = ?3 AND expires_us >= ?4",
            params![self.kind, self.name, self.owner, now, self.lease_us],
        )?;
        Ok(if renewed > 0 {
            RenewalOutcome::Alive(Lease::For(self.lease))
        } else {
            RenewalOutcome::Lost(LossReason::Evicted)
        })
    }

    fn release(&self, file: &Transaction<'_>, now: i64) -> rusqlite::Result<Released> {
        let freed = file.execute(
            "DELETE FROM lockkit_locks
             WHERE kind = ?1 AND name = ?2 AND owner = ?3 AND expires_us >= ?4",
            params![self.kind, self.name, self.owner, now],
        )?;
        Ok(if freed > 0 { Released::Freed } else { Released::NotHeld })
    }
}
