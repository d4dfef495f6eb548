//! The library rslock, used as its README shows: `LockManager::acquire`, and `release` on the
//! guard. One manager serves all tasks. It has no fencing token and no queue. It renews a lock only
//! on request.

use std::{
    fmt,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockkit::redis::redis::Client as RedisClient;
use rslock::LockManager;

use super::LEASE_MS;
use crate::{
    Error, Result,
    floor::{Floor, FloorClient, held},
};

pub(super) struct Rslock {
    manager: LockManager,
}

impl Rslock {
    pub(super) async fn open(url: &str) -> Result<Self> {
        let failed = |error| Error::of("could not open rslock", error);
        let client = RedisClient::open(url).map_err(failed)?;
        // rslock repeats a failed request for ever, and never says why.
        client.get_multiplexed_async_connection().await.map_err(failed)?;
        Ok(Self { manager: LockManager::from_clients(vec![client]) })
    }
}

impl fmt::Debug for Rslock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rslock").finish_non_exhaustive()
    }
}

#[async_trait]
impl Floor for Rslock {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let client =
            || -> Box<dyn FloorClient> { Box::new(Client { manager: self.manager.clone() }) };
        Ok((0..tasks).map(|_| client()).collect())
    }

    /// The lock of a stopped client ends with its lease.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct Client {
    manager: LockManager,
}

#[async_trait]
impl FloorClient for Client {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        let lease = Duration::from_millis(LEASE_MS);
        let guard = self.manager.acquire(name, lease).await;
        let guard = guard.map_err(|error| Error::of("a lock of rslock failed", error))?;
        let granted = held(hold).await;
        guard.release().await;
        Ok(granted)
    }
}
