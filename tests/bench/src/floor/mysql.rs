//! The rivals on MySQL and MariaDB. The floor has tables of its own. For the optimistic strategy it
//! has two updates by primary key, which check nothing. For the pessimistic strategy it has a
//! transaction around a row lock, and the fence on a second connection.

mod get_lock;
mod row_lock;

use std::{
    collections::HashSet,
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockkit::{
    OwnerId,
    mysql::{
        Config, Strategy,
        mysql_async::{self as my, Conn, Statement, prelude::Queryable as _},
    },
    url::StoreUrl,
};

use self::{get_lock::GetLock, row_lock::BareRowLock};
use super::{Floor, FloorClient, Rival, held};
use crate::{Error, Result, report::Side};

/// lockkit reads the server's time in the same way, in µs.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";
const LEASE_US: u64 = 30_000_000;

/// All rivals of lockkit on this server.
pub(super) async fn rivals(url: StoreUrl) -> Vec<Rival> {
    let config = match Config::from_url(url).map_err(opening) {
        Ok(config) => config,
        Err(error) => {
            let sides = [Side::Classic, Side::RowLock, Side::Floor];
            return sides.map(|side| Rival::without(side, error.to_string())).into();
        }
    };
    let mut rivals = vec![Rival::new(Side::Classic, GetLock::open(config.clone()).await)];
    match Shared::open(config).await {
        Ok(shared) => {
            rivals.push(Rival::new(Side::RowLock, Ok(BareRowLock(Arc::clone(&shared)))));
            rivals.push(Rival::new(Side::Floor, Ok(MySqlFloor(shared))));
        }
        Err(error) => rivals.extend(
            [Side::RowLock, Side::Floor].map(|side| Rival::without(side, error.to_string())),
        ),
    }
    rivals
}

#[derive(Debug)]
struct MySqlFloor(Arc<Shared>);

/// The tables of the floor and of the bare row lock.
#[derive(Debug)]
struct Shared {
    config: Config,
    tables: Tables,
    /// The connection that created the tables, and drops them at the end.
    side: tokio::sync::Mutex<Option<Conn>>,
}

/// The names of the tables, with a random suffix.
#[derive(Clone, Debug)]
struct Tables {
    lock: String,
    fence: String,
}

impl Shared {
    async fn open(config: Config) -> Result<Arc<Self>> {
        let mut side = config.open_bare().await.map_err(opening)?;
        let suffix = format!("{:016x}", rand::random::<u64>());
        let tables = Tables {
            lock: format!("lockkit_bench_{suffix}"),
            fence: format!("lockkit_bench_fence_{suffix}"),
        };
        for statement in tables.create() {
            if let Err(error) = side.query_drop(statement).await {
                // If one table could not be created, the other may exist, so this drops both.
                let _ = side.query_drop(tables.drop()).await;
                let what = "could not create a table of the bare driver (it needs the rights \
                            CREATE and DROP)";
                return Err(Error::of(what, error));
            }
        }
        Ok(Arc::new(Self { config, tables, side: Some(side).into() }))
    }

    /// Drops the tables.
    async fn close(&self) -> Result<()> {
        let dropping = |error| {
            Error::of(
                format!("could not drop the tables of the bare driver ({})", self.tables.drop()),
                error,
            )
        };
        let Some(mut side) = self.side.lock().await.take() else { return Ok(()) };
        if side.query_drop(self.tables.drop()).await.is_err() {
            // The connection was idle all the time, and the server may have closed it.
            side = self.config.open_bare().await.map_err(opening)?;
            side.query_drop(self.tables.drop()).await.map_err(dropping)?;
        }
        side.disconnect().await.map_err(dropping)
    }
}

impl Tables {
    /// The tables have the columns of lockkit's tables, where the width of a column affects the
    /// work.
    fn create(&self) -> [String; 2] {
        let Self { lock, fence } = self;
        [
            format!(
                "CREATE TABLE {lock}(kind VARBINARY(16) NOT NULL,name VARBINARY(255) NOT NULL,\
                 owner VARBINARY(64) NOT NULL DEFAULT '',fence BIGINT UNSIGNED NOT NULL DEFAULT 0,\
                 expires_us BIGINT UNSIGNED NOT NULL DEFAULT 0,touched_us BIGINT UNSIGNED NOT NULL \
                 DEFAULT 0,acquired_us BIGINT UNSIGNED NOT NULL DEFAULT 0,wanted_us BIGINT \
                 UNSIGNED NOT NULL DEFAULT 0,permits INT UNSIGNED NOT NULL DEFAULT 0,label \
                 VARBINARY(255) NOT NULL DEFAULT '',PRIMARY KEY(kind,name)) ENGINE=InnoDB"
            ),
            format!(
                "CREATE TABLE {fence}(kind VARBINARY(16) NOT NULL,name VARBINARY(255) NOT NULL,\
                 fence BIGINT UNSIGNED NOT NULL,PRIMARY KEY(kind,name)) ENGINE=InnoDB"
            ),
        ]
    }

    fn drop(&self) -> String {
        format!("DROP TABLE IF EXISTS {},{}", self.lock, self.fence)
    }
}

/// A bare connection has lockkit's settings, and so it would wait only one second for a row. The
/// default of the servers is 50 seconds.
const LONG_WAIT: &str = "SET SESSION innodb_lock_wait_timeout=50";

fn opening(error: lockkit::Error) -> Error {
    Error::of("could not connect the bare driver to MySQL", error)
}

fn failed(error: my::Error) -> Error {
    Error::of("a statement of the bare driver failed on MySQL", error)
}

#[async_trait]
impl Floor for MySqlFloor {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let mut clients: Vec<Box<dyn FloorClient>> = Vec::new();
        let Shared { config, tables, .. } = &*self.0;
        for _ in 0..tasks.min(config.pool_size()) {
            clients.push(match config.strategy() {
                Strategy::Optimistic => Box::new(Updates::open(config, tables).await?),
                Strategy::Pessimistic => Box::new(RowLock::open(config, tables).await?),
            });
        }
        Ok(clients)
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}

/// Two updates that only write. They check no turn of an owner, and read no time.
struct Updates {
    conn: Conn,
    owner: String,
    make: String,
    take: Statement,
    free: Statement,
}

impl Updates {
    async fn open(config: &Config, Tables { lock, .. }: &Tables) -> Result<Self> {
        let mut conn = config.open_bare().await.map_err(opening)?;
        let take = format!(
            "UPDATE {lock} SET owner=?,fence=LAST_INSERT_ID(fence+1),expires_us=? WHERE kind='m' \
             AND name=?"
        );
        let take = conn.prep(take).await.map_err(failed)?;
        let free = format!("UPDATE {lock} SET owner='',expires_us=0 WHERE kind='m' AND name=?");
        let free = conn.prep(free).await.map_err(failed)?;
        let make = format!("INSERT IGNORE INTO {lock}(kind,name) VALUES('m',?)");
        Ok(Self { conn, owner: OwnerId::random().to_string(), make, take, free })
    }

    async fn work(&mut self, name: &str, hold: Duration) -> Result<Instant, my::Error> {
        self.take(name).await?;
        if self.conn.affected_rows() == 0 {
            self.conn.exec_drop(&self.make, (name,)).await?;
            self.take(name).await?;
        }
        let granted = held(hold).await;
        self.conn.exec_drop(&self.free, (name,)).await?;
        Ok(granted)
    }

    async fn take(&mut self, name: &str) -> Result<(), my::Error> {
        self.conn.exec_drop(&self.take, (&self.owner, LEASE_US, name)).await
    }
}

#[async_trait]
impl FloorClient for Updates {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        self.work(name, hold).await.map_err(failed)
    }
}

/// A transaction around a row lock. Its first two statements are one request, which is faster over
/// a network.
struct RowLock {
    lock: Conn,
    fence: Conn,
    table: String,
    bump: Statement,
    /// The names whose rows exist.
    known: HashSet<String>,
}

impl RowLock {
    async fn open(config: &Config, tables: &Tables) -> Result<Self> {
        let mut lock = config.open_bare().await.map_err(opening)?;
        lock.query_drop(LONG_WAIT).await.map_err(failed)?;
        let mut fence = config.open_bare().await.map_err(opening)?;
        let bump = format!(
            "INSERT INTO {}(kind,name,fence) VALUES('m',?,LAST_INSERT_ID({NOW})) \
             ON DUPLICATE KEY UPDATE fence=LAST_INSERT_ID(GREATEST(fence+1,{NOW}))",
            tables.fence
        );
        let bump = fence.prep(bump).await.map_err(failed)?;
        Ok(Self { lock, fence, table: tables.lock.clone(), bump, known: HashSet::new() })
    }

    async fn work(&mut self, name: &str, hold: Duration) -> Result<Instant, my::Error> {
        if !self.known.contains(name) {
            let make = format!("INSERT IGNORE INTO {}(kind,name) VALUES('m',?)", self.table);
            self.lock.exec_drop(make, (name,)).await?;
            self.known.insert(name.to_owned());
        }
        let table = &self.table;
        let name_literal = literal(name);
        let begin = format!(
            "BEGIN;SELECT 1 FROM {table} WHERE kind='m' AND name={name_literal} FOR UPDATE"
        );
        self.lock.query_drop(begin).await?;
        self.fence.exec_drop(&self.bump, (name,)).await?;
        let granted = held(hold).await;
        self.lock.query_drop("COMMIT").await?;
        Ok(granted)
    }
}

#[async_trait]
impl FloorClient for RowLock {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        self.work(name, hold).await.map_err(failed)
    }
}

/// A string literal that no quote in the name can end.
fn literal(name: &str) -> String {
    let mut text = String::from("X'");
    for byte in name.bytes() {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text + "'"
}
