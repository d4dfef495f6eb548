//! The bare client on the same servers, for those who measure, or ask what lockkit does not ask.

use lockkit_core::{Kind, LockName, Result};
use redis::aio::MultiplexedConnection;

use crate::{config::Config, family::Family, store::Store};

/// The scripts by which a free mutex is taken and given back, one request each; those of the other
/// requests are not told.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MutexScripts {
    /// Keys: those of [`BareMutex::keys`]. Arguments: the owner, the lease in ms, the server's time
    /// in µs after which nothing is done, what a waiter is known by (`client:window in ms:owner`),
    /// 1, for how many ms a waiter is kept that nobody keeps alive, [`BareMutex::publish`] and
    /// [`BareMutex::channels`].
    pub acquire: &'static str,
    /// The same keys. Arguments: the owner, two that say that there is nothing else to take back
    /// (an empty text, and 0), [`BareMutex::publish`] and [`BareMutex::channels`].
    pub release: &'static str,
}

/// The texts of the scripts for mutexes that this version of lockkit runs, by `EVALSHA`. They are
/// no interface: another version may run others.
#[must_use]
pub fn mutex_scripts() -> MutexScripts {
    let scripts = Family::Exclusive.scripts();
    MutexScripts { acquire: scripts.acquire.text(), release: scripts.release.text() }
}

/// The servers of a configuration, by connections of the bare client that have the settings of
/// lockkit's own: one for each server that keeps locks. A lost connection is opened anew for those
/// who ask again.
#[derive(Debug)]
pub struct BareServers {
    store: Store,
    config: Config,
}

/// Where a mutex is kept, and what its scripts must be told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BareMutex {
    /// To the server that has its keys.
    pub connection: MultiplexedConnection,
    /// In the order of the scripts.
    pub keys: [String; 4],
    /// The command by which waiters are told.
    pub publish: &'static str,
    /// What the channels of waiters start with.
    pub channels: String,
}

impl BareServers {
    /// Connects, and checks that the server can be used for locks, as
    /// [`Redis::connect`](crate::Redis::connect) does.
    ///
    /// # Errors
    /// Those of [`Redis::connect`](crate::Redis::connect).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: Config) -> Result<Self> {
        let store = Store::new(config.clone());
        store.route(0).next().await?;
        Ok(Self { store, config })
    }

    /// A connection to each server that keeps locks, all of them clones of those for mutexes.
    ///
    /// # Errors
    /// Those of [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connections(&self) -> Result<Vec<MultiplexedConnection>> {
        let mut connections = Vec::new();
        for slot in self.store.slots().await? {
            connections.push(self.store.route(slot).next().await?.link.connection());
        }
        Ok(connections)
    }

    /// Where a mutex is kept.
    ///
    /// # Errors
    /// [`InvalidName`](lockkit_core::ErrorKind::InvalidName), and those of
    /// [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn mutex(&self, name: &str) -> Result<BareMutex> {
        let keys = self.config.keyspace().keys(&LockName::new(Kind::Mutex, name)?)?;
        let link = self.store.route(keys.slot).next().await?.link;
        let (publish, channels) = self.store.channels(&link, &keys);
        let keys = keys.exclusive().map(str::to_owned);
        Ok(BareMutex { connection: link.connection(), keys, publish, channels })
    }
}
