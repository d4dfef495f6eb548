//! The lock that programs implement themselves: `SET NX PX` with a random token, and a script that
//! deletes the key if it still has that token. A client that finds the key asks again after a short
//! random pause. The lock has no fencing token, no renewal and no queue.

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use lockkit::{
    OwnerId,
    redis::redis::{RedisError, Script, Value, aio::MultiplexedConnection, cmd},
};
use rand::RngExt as _;

use super::{LEASE_MS, Shared};
use crate::{
    Error, Result,
    floor::{Floor, FloorClient, held},
};

/// The longest pause before the next attempt, in microseconds.
const LONGEST_PAUSE_US: u64 = 10_000;

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

pub(super) struct Classic {
    shared: Arc<Shared>,
    release: Script,
}

impl Classic {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, release: Script::new(COMPARE_AND_DELETE) }
    }
}

impl fmt::Debug for Classic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Classic").finish_non_exhaustive()
    }
}

#[async_trait]
impl Floor for Classic {
    async fn clients(&self, tasks: usize) -> Result<Vec<Box<dyn FloorClient>>> {
        let client = || -> Box<dyn FloorClient> {
            Box::new(Client {
                shared: Arc::clone(&self.shared),
                release: self.release.clone(),
                keys: HashMap::new(),
            })
        };
        Ok((0..tasks).map(|_| client()).collect())
    }

    async fn close(&self) -> Result<()> {
        self.shared.clean().await
    }
}

struct Client {
    shared: Arc<Shared>,
    release: Script,
    /// The key of each name.
    keys: HashMap<String, Key>,
}

struct Key {
    key: String,
    connection: MultiplexedConnection,
}

#[async_trait]
impl FloorClient for Client {
    async fn pair(&mut self, name: &str, hold: Duration) -> Result<Instant> {
        if !self.keys.contains_key(name) {
            let mutex = self.shared.mutex(format!("{name}/classic")).await?;
            let [key, ..] = mutex.keys;
            self.keys.insert(name.to_owned(), Key { key, connection: mutex.connection });
        }
        let Some(key) = self.keys.get_mut(name) else {
            return Err(Error::new("the classic lock on Redis has no prepared key"));
        };
        let failed = |error| Error::of("the classic lock failed on Redis", error);
        let token = OwnerId::random().to_string();
        while !key.take(&token).await.map_err(failed)? {
            let pause = rand::rng().random_range(0..=LONGEST_PAUSE_US);
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
        let granted = held(hold).await;
        if !key.give_back(&token, &self.release).await.map_err(failed)? {
            return Err(Error::new(
                "the classic lock on Redis ended before the client released it",
            ));
        }
        Ok(granted)
    }
}

impl Key {
    /// Returns false if another client has the lock.
    async fn take(&mut self, token: &str) -> Result<bool, RedisError> {
        let mut set = cmd("SET");
        set.arg(&self.key).arg(token).arg("NX").arg("PX").arg(LEASE_MS);
        let answer: Value = set.query_async(&mut self.connection).await?;
        Ok(answer != Value::Nil)
    }

    /// Returns false if the lock was lost.
    async fn give_back(&mut self, token: &str, release: &Script) -> Result<bool, RedisError> {
        release.key(&self.key).arg(token).invoke_async(&mut self.connection).await
    }
}
