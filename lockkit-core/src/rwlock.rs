//! The read/write lock.

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
/// A reader's token is above every earlier writer's and below every later one's.
///
/// Not reentrant: a reader that asks again waits behind a writer that waits, who waits for this
/// reader.
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
    /// The read/write lock with this name. Does no I/O.
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

    /// Sets options of this lock. An option that is not set stays as it is: at first the locker's
    /// default.
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

    /// Waits for the lock to read, together with other readers.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when [`LockOptions::wait`] has passed. A
    /// store that can't be reached is asked again; for how long is bounded by `wait`, or without
    /// one by the ttl. Anything else at once.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn read(&self) -> Result<LockGuard> {
        self.handle.lock(Mode::Shared).await
    }

    /// Asks once for the lock to read, together with other readers; `None` if it is taken.
    ///
    /// # Errors
    /// Whatever the store says. That the lock is taken is no error.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn try_read(&self) -> Result<Option<LockGuard>> {
        self.handle.try_lock(Mode::Shared).await
    }

    /// Waits at most `wait` for the lock to read, together with other readers, whatever bound the
    /// options set.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when `wait` has passed, or whatever the
    /// store says, after asking again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn read_timeout(&self, wait: Duration) -> Result<LockGuard> {
        self.handle.lock_timeout(Mode::Shared, wait).await
    }

    /// Waits for the lock to write, alone.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when [`LockOptions::wait`] has passed. A
    /// store that can't be reached is asked again; for how long is bounded by `wait`, or without
    /// one by the ttl. Anything else at once.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn write(&self) -> Result<LockGuard> {
        self.handle.lock(Mode::Exclusive).await
    }

    /// Asks once for the lock to write, alone; `None` if it is taken.
    ///
    /// # Errors
    /// Whatever the store says. That the lock is taken is no error.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn try_write(&self) -> Result<Option<LockGuard>> {
        self.handle.try_lock(Mode::Exclusive).await
    }

    /// Waits at most `wait` for the lock to write, alone, whatever bound the options set.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when `wait` has passed, or whatever the
    /// store says, after asking again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn write_timeout(&self, wait: Duration) -> Result<LockGuard> {
        self.handle.lock_timeout(Mode::Exclusive, wait).await
    }

    /// Tells who holds it and how many wait for it.
    ///
    /// # Errors
    /// Whatever the store says.
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
    /// Whatever the store says.
    ///
    /// # Cancel safety
    /// Dropped midway it may or may not have been done; doing it again is harmless.
    pub async fn force_release(&self, token: FencingToken) -> Result<Released> {
        self.handle.force_release(token).await
    }
}
