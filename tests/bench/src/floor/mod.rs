//! All rivals of lockkit on a store: lockkit's own requests through the bare driver, and the locks
//! that programs use instead of lockkit.

mod file;
mod mysql;
mod redis;
mod rival;
#[cfg(test)]
mod tests;
mod zookeeper;

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use async_trait::async_trait;

pub(crate) use self::rival::Rival;
use crate::{Result, family::Family, peer::Peer, report::Side};

/// One way to do the work of locks without lockkit.
///
/// The floor in the narrow sense ([`Side::Floor`]) is the least work of a store: no retry, no
/// renewal, no wait. All other rivals are contenders: their locks exclude, and their clients wait.
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
    /// Takes a name, holds it for this long, and releases it. Returns the instant of the grant. A
    /// contender waits while another client has the name. For [`Side::Floor`], no other client may
    /// use the name.
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant>;
}

/// Holds a granted lock, as tasks with lockkit do, and returns the start of the hold.
async fn held(hold: Duration) -> Instant {
    let granted = Instant::now();
    if !hold.is_zero() {
        tokio::time::sleep(hold).await;
    }
    granted
}

/// All rivals of lockkit on a store. `memory` has no rival, because its locks use no driver.
pub(crate) async fn rivals(url: &str, peer: Option<Peer>) -> Result<Vec<Rival>> {
    let (family, parsed) = Family::of(url)?;
    Ok(match family {
        Family::File => file::rivals(&parsed),
        Family::Memory => {
            let reason = "this store uses no driver".to_owned();
            vec![Rival::without(Side::Floor, reason)]
        }
        Family::MySql => mysql::rivals(parsed).await,
        Family::Redis => redis::rivals(url, parsed, peer).await,
        Family::ZooKeeper => zookeeper::rivals(parsed).await,
    })
}
