//! Implements the backend: a file as a store of locks.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, Result, Tick,
    spi::{
        Admin, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Exceptions, Holder, Inspection,
        Mode, Poll, Released, Role,
    },
};
use rusqlite::{Row, params};

use crate::{
    claim::SqliteClaim,
    config::Config,
    database::Database,
    error::{BACKEND, ours},
};

/// A waiter asks after 10 ms, then less often, because each request briefly locks the file for all
/// other requests.
const SHORTEST_POLL: Duration = Duration::from_millis(10);
const LONGEST_POLL: Duration = Duration::from_millis(200);
/// The longest poll with its jitter of 25 %.
const TAKEOVER_DELAY: Duration = Duration::from_millis(250);

/// The capabilities and limits of every SQLite store.
pub static DESCRIPTOR: Descriptor = Descriptor {
    capabilities: Capabilities { exclusive: true, labels: true, names: true, ..Capabilities::NONE },
    exceptions: Exceptions { server_clock_step: true, ..Exceptions::NONE },
    poll: Poll { min: SHORTEST_POLL, max: LONGEST_POLL },
    takeover_delay: TAKEOVER_DELAY,
    ..Descriptor::new(BACKEND)
};

/// A store of locks in one SQLite file of this host.
#[derive(Debug)]
pub struct Sqlite {
    database: Arc<Database>,
}

impl Sqlite {
    /// Opens the file, and creates missing tables.
    ///
    /// # Errors
    /// The file can't be written, or is not a store of lockkit.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the call closes the file again.
    pub async fn open(config: Config) -> Result<Self> {
        Ok(Self { database: Arc::new(Database::open(config.file).await?) })
    }
}

#[async_trait]
impl Backend for Sqlite {
    fn descriptor(&self) -> &Descriptor {
        &DESCRIPTOR
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        if spec.mode != Mode::Exclusive {
            let reason =
                format!("a {} does not support the mode {:?}", spec.name.kind(), spec.mode);
            return Err(ours(ErrorKind::Unsupported, reason));
        }
        Ok(Box::new(SqliteClaim::new(Arc::clone(&self.database), spec)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        const SQL: &str = "SELECT owner, token, label, ?3 - granted_us, expires_us - ?3
             FROM lockkit_locks WHERE kind = ?1 AND name = ?2 AND expires_us >= ?3";
        let name = name.clone();
        let found = self.database.read(move |file, now| {
            let mut rows = file.prepare(SQL)?;
            rows.query_map(params![name.kind().as_str(), name.as_str(), now], holder)?.collect()
        });
        Ok(Inspection::new(found.await?, None))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        const SQL: &str = "DELETE FROM lockkit_locks
             WHERE kind = ?1 AND name = ?2 AND token = ?3 AND expires_us >= ?4";
        let name = name.clone();
        let freed = self.database.write(Tick::NEVER, move |file, now| {
            file.execute(
                SQL,
                params![name.kind().as_str(), name.as_str(), token.get().cast_signed(), now],
            )
        });
        Ok(if freed.await? > 0 { Released::Freed } else { Released::NotHeld })
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.database.close().await;
        Ok(())
    }
}

#[async_trait]
impl Admin for Sqlite {
    async fn probe(&self) -> Result<Role> {
        // A read works while another process locks the file for writes, but a lock does not.
        self.database.write(Tick::NEVER, |_, _| Ok(Role::Primary)).await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        const SQL: &str = "SELECT name FROM lockkit_locks WHERE kind = ?1 AND expires_us >= ?2";
        let held = self.database.read(move |file, now| {
            let mut rows = file.prepare(SQL)?;
            rows.query_map(params![kind.as_str(), now], |row| row.get(0))?.collect()
        });
        let held: Vec<String> = held.await?;
        let names = held.iter().filter(|name| name.starts_with(prefix));
        names.map(|name| LockName::new(kind, name)).collect()
    }
}

fn holder(row: &Row<'_>) -> rusqlite::Result<Holder> {
    let owner: String = row.get(0)?;
    let token: i64 = row.get(1)?;
    let holder = Holder::new(Mode::Exclusive)
        .with_label(row.get::<_, Option<String>>(2)?)
        .with_age(duration(row.get(3)?))
        .with_remaining(duration(row.get(4)?));
    let token = FencingToken::new(token.cast_unsigned());
    // Another program may have written an owner that lockkit does not know.
    Ok(owner.parse().map_or(holder.clone(), |owner| holder.with_grant(owner, token)))
}

fn duration(microseconds: i64) -> Duration {
    Duration::from_micros(u64::try_from(microseconds).unwrap_or_default())
}
