//! The least work that a store must do for a lock, through its bare driver. lockkit's figures are
//! compared with it.

mod file;
mod mysql;
mod redis;
#[cfg(test)]
mod tests;
mod zookeeper;

use std::{
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;

use crate::{Result, family::Family};

/// The least work that a store must do for a lock, through its bare driver: no retry, no renewal,
/// no wait.
#[async_trait]
pub(crate) trait Floor: Send + Sync + Debug {
    /// Clients that together do the work of this many tasks. There are as many as lockkit's backend
    /// would use connections. Where tasks share a connection, each task gets a client of its own on
    /// it.
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>>;

    /// Frees connections, and removes what clients left in the store.
    async fn close(&self) -> Result<()>;
}

/// One task at work.
#[async_trait]
pub(crate) trait FloorClient: Send {
    /// Takes a name, holds it for this long, and gives it back; returns when it had the name. No
    /// other client uses the name.
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant>;
}

/// Holds a lock that was taken, as tasks with lockkit do, and returns the start of the hold.
async fn held(hold: Duration) -> Instant {
    let granted = Instant::now();
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    granted
}

/// The floor of a store. `None` for `memory`, because no driver is under its locks.
pub(crate) async fn open(url: &str) -> Result<Option<Arc<dyn Floor>>> {
    let (family, url) = Family::of(url)?;
    Ok(Some(match family {
        Family::File => Arc::new(file::FileFloor::open(&url)?),
        Family::Memory => return Ok(None),
        Family::MySql => Arc::new(mysql::MySqlFloor::open(url).await?),
        Family::Redis => Arc::new(redis::RedisFloor::open(url).await?),
        Family::ZooKeeper => Arc::new(zookeeper::ZooKeeperFloor::open(url).await?),
    }))
}
