//! Gives measurements and other programs the bare client on the same servers.

use lockkit_core::{Kind, LockName, Result};
use redis::aio::MultiplexedConnection;

use crate::{config::Config, family::Family, store::Store};

/// The scripts that take and give back a free mutex, one request each. The scripts of the other
/// requests are not listed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MutexScripts {
    /// The keys are those of [`BareMutex::keys`]. The arguments are:
    ///
    /// 1. the owner
    /// 2. the lease in ms
    /// 3. the server's time in µs after which the script does nothing
    /// 4. the waiter's entry in the queue (`client:window in ms:owner`)
    /// 5. 1, to wait in the queue
    /// 6. for how many ms the store keeps a waiter without a refresh
    /// 7. [`BareMutex::publish`]
    /// 8. [`BareMutex::channels`]
    ///
    /// The answer to a grant is the token.
    pub acquire: &'static str,
    /// The keys are the same. The arguments are `token:owner`, an empty text, 0,
    /// [`BareMutex::publish`] and [`BareMutex::channels`]. The empty text and the 0 say that there
    /// is nothing else to take back.
    pub release: &'static str,
}

/// The texts of the scripts that this version of lockkit runs for mutexes, by `EVALSHA`. They are
/// not an interface: another version may run others.
#[must_use]
pub fn mutex_scripts() -> MutexScripts {
    let scripts = Family::Exclusive.scripts();
    MutexScripts { acquire: scripts.acquire.text(), release: scripts.release.text() }
}

/// The servers of a configuration, with connections of the bare client. There is one connection for
/// each server that keeps locks, with the settings of lockkit's own connections. The next call
/// opens a lost connection anew.
///
/// These connections bound no request, so a caller must. A request may get no answer if its
/// connection ends.
#[derive(Debug)]
pub struct BareServers {
    store: Store,
    config: Config,
}

/// Where a mutex is kept, and the arguments that its scripts need.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BareMutex {
    /// A connection to the server that has the keys.
    pub connection: MultiplexedConnection,
    /// The keys, in the order of the scripts.
    pub keys: [String; 4],
    /// The command that sends a message to a waiter.
    pub publish: &'static str,
    /// The start of the waiters' channels.
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

    /// A connection to each server that keeps locks. Each is a clone of the connection for mutexes.
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
