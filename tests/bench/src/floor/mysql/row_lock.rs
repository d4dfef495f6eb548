//! A row lock as programs use it: `BEGIN`, `SELECT … FOR UPDATE` by primary key, and `COMMIT`. It
//! belongs to a connection, and has neither a fencing token nor a lease.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockkit::mysql::mysql_async::{self as my, Conn, Statement, prelude::Queryable as _};

use super::{LONG_WAIT, Shared, failed, opening};
use crate::{
    Result,
    floor::{Floor, FloorClient, held},
};

#[derive(Debug)]
pub(super) struct BareRowLock(pub(super) Arc<Shared>);

#[async_trait]
impl Floor for BareRowLock {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let mut clients: Vec<Box<dyn FloorClient>> = Vec::new();
        for _ in 0..tasks.min(self.0.config.pool_size()) {
            clients.push(Box::new(Client::open(&self.0).await?));
        }
        Ok(clients)
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }
}

struct Client {
    conn: Conn,
    make: Statement,
    select: Statement,
    /// The names whose rows exist.
    known: HashSet<String>,
}

impl Client {
    async fn open(shared: &Shared) -> Result<Self> {
        let table = &shared.tables.lock;
        let mut conn = shared.config.open_bare().await.map_err(opening)?;
        conn.query_drop(LONG_WAIT).await.map_err(failed)?;
        let make = format!("INSERT IGNORE INTO {table}(kind,name) VALUES('r',?)");
        let make = conn.prep(make).await.map_err(failed)?;
        let select = format!("SELECT 1 FROM {table} WHERE kind='r' AND name=? FOR UPDATE");
        let select = conn.prep(select).await.map_err(failed)?;
        Ok(Self { conn, make, select, known: HashSet::new() })
    }

    async fn work(&mut self, name: &str, hold: Duration) -> Result<Instant, my::Error> {
        if !self.known.contains(name) {
            self.conn.exec_drop(&self.make, (name,)).await?;
            self.known.insert(name.to_owned());
        }
        self.conn.query_drop("BEGIN").await?;
        self.conn.exec_drop(&self.select, (name,)).await?;
        let granted = held(hold).await;
        self.conn.query_drop("COMMIT").await?;
        Ok(granted)
    }
}

#[async_trait]
impl FloorClient for Client {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        self.work(name, hold).await.map_err(failed)
    }
}
