//! The lock functions of MySQL: `GET_LOCK` and `RELEASE_LOCK`. Such a lock belongs to a connection,
//! needs no table, and has neither a fencing token nor a lease.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use lockkit::mysql::{
    Config,
    mysql_async::{self as my, Conn, Statement, prelude::Queryable as _},
};

use super::{failed, opening};
use crate::{
    Error, Result,
    floor::{Floor, FloorClient, held},
};

/// How long the server waits for the lock, in seconds. A slice is far shorter.
const PATIENCE_S: u32 = 60;

#[derive(Debug)]
pub(super) struct GetLock {
    config: Config,
}

impl GetLock {
    pub(super) async fn open(config: Config) -> Result<Self> {
        let conn = config.open_bare().await.map_err(opening)?;
        conn.disconnect().await.map_err(failed)?;
        Ok(Self { config })
    }
}

#[async_trait]
impl Floor for GetLock {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let mut clients: Vec<Box<dyn FloorClient>> = Vec::new();
        for _ in 0..tasks.min(self.config.pool_size()) {
            clients.push(Box::new(Client::open(&self.config).await?));
        }
        Ok(clients)
    }

    /// The server frees the locks of a connection that ends.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct Client {
    conn: Conn,
    take: Statement,
    free: Statement,
}

impl Client {
    async fn open(config: &Config) -> Result<Self> {
        let mut conn = config.open_bare().await.map_err(opening)?;
        let take = conn.prep(format!("SELECT GET_LOCK(?,{PATIENCE_S})")).await.map_err(failed)?;
        let free = conn.prep("SELECT RELEASE_LOCK(?)").await.map_err(failed)?;
        Ok(Self { conn, take, free })
    }

    /// Whether the server answers 1, which means that it took or freed the lock.
    async fn is_done(&mut self, statement: &Statement, name: &str) -> Result<bool, my::Error> {
        let answer: Option<Option<i64>> = self.conn.exec_first(statement, (name,)).await?;
        Ok(answer.flatten() == Some(1))
    }
}

#[async_trait]
impl FloorClient for Client {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        let take = self.take.clone();
        if !self.is_done(&take, name).await.map_err(failed)? {
            return Err(Error::new(format!("GET_LOCK granted no lock within {PATIENCE_S} s")));
        }
        let granted = held(hold).await;
        let free = self.free.clone();
        if !self.is_done(&free, name).await.map_err(failed)? {
            return Err(Error::new("the lock of GET_LOCK ended before the client released it"));
        }
        Ok(granted)
    }
}
