//! Offers the read/write lock to users.

use std::time::Duration;

use crate::{
    error::Result,
    guard::LockGuard,
    handle::Handle,
    locker::Locker,
    name::{Kind, LockName},
    options::LockOptions,
    spi::{Inspection, Mode, Released},
    token::FencingToken,
};

/// A lock that many readers or one writer hold at a time ([C1](crate::contract#c1-exclusion)).
/// Where the store is fair, readers don't starve writers ([C12](crate::contract#c12-fairness)).
///
/// A reader's token is above every earlier writer's token and below every later writer's token.
///
/// The lock is not reentrant. If a reader asks again, it may wait behind a writer that waits for
/// this reader.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = lockkit_core::Locker::memory();
/// let prices = locker.rw_lock("prices")?;
/// let (one, other) = (prices.read().await?, prices.read().await?);
/// assert!(prices.try_write().await?.is_none());
/// let one_reader = one.fencing_token();
/// one.release().await?;
/// other.release().await?;
/// let writer = prices.write().await?;
/// assert!(writer.fencing_token() > one_reader);
/// writer.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    handle: Handle,
}

impl Locker {
    /// Returns the read/write lock with this name. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), or
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the backend has no shared
    /// locks.
    pub fn rw_lock(&self, name: &str) -> Result<RwLock> {
        self.require(self.capabilities().shared, "read/write locks")?;
        Ok(RwLock::new(Handle::new(self, Kind::RwLock, name)?))
    }
}

impl RwLock {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    /// Sets options of this lock. An option that is not set keeps its value, which is at first the
    /// locker's default.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if the options contradict each
    /// other.
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self { handle: self.handle.with_options(options)? })
    }

    /// The checked name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// Waits for the lock as a reader, together with other readers.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when [`LockOptions::wait`] has passed. If
    /// the store can't be reached, the call asks again until `wait` has passed. Without `wait`, it
    /// asks again for the ttl. It returns any other error at once.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn read(&self) -> Result<LockGuard> {
        self.handle.lock(Mode::Shared).await
    }

    /// Asks once for the lock as a reader, together with other readers. Returns `None` if it is
    /// taken.
    ///
    /// # Errors
    /// Any error of the store. A lock that is taken is no error.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn try_read(&self) -> Result<Option<LockGuard>> {
        self.handle.try_lock(Mode::Shared).await
    }

    /// Waits at most `wait` for the lock as a reader, together with other readers. This bound
    /// replaces the bound of the options.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when `wait` has passed. Otherwise any
    /// error of the store, after the call has asked again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn read_timeout(&self, wait: Duration) -> Result<LockGuard> {
        self.handle.lock_timeout(Mode::Shared, wait).await
    }

    /// Waits for the lock as the only writer.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when [`LockOptions::wait`] has passed. If
    /// the store can't be reached, the call asks again until `wait` has passed. Without `wait`, it
    /// asks again for the ttl. It returns any other error at once.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn write(&self) -> Result<LockGuard> {
        self.handle.lock(Mode::Exclusive).await
    }

    /// Asks once for the lock as the only writer. Returns `None` if it is taken.
    ///
    /// # Errors
    /// Any error of the store. A lock that is taken is no error.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn try_write(&self) -> Result<Option<LockGuard>> {
        self.handle.try_lock(Mode::Exclusive).await
    }

    /// Waits at most `wait` for the lock as the only writer. This bound replaces the bound of the
    /// options.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when `wait` has passed. Otherwise any
    /// error of the store, after the call has asked again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn write_timeout(&self, wait: Duration) -> Result<LockGuard> {
        self.handle.lock_timeout(Mode::Exclusive, wait).await
    }

    /// Reports the holders of the lock and the number of waiters.
    ///
    /// # Errors
    /// Any error of the store.
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    pub async fn inspect(&self) -> Result<Inspection> {
        self.handle.inspect().await
    }

    /// Frees the grant with this token, whoever owns it; see
    /// [`Locker::force_release`](crate::Locker::force_release).
    ///
    /// # Errors
    /// Any error of the store.
    ///
    /// # Cancel safety
    /// If the call is dropped, the lock may or may not have been freed. A second call is harmless.
    pub async fn force_release(&self, token: FencingToken) -> Result<Released> {
        self.handle.force_release(token).await
    }
}
