//! The counting semaphore.

use std::{num::NonZeroU32, time::Duration};

use crate::{
    error::{Error, ErrorKind, Result},
    guard::LockGuard,
    handle::Handle,
    locker::Locker,
    name::{Kind, LockName},
    options::LockOptions,
    spi::{Inspection, Mode, Released},
    token::FencingToken,
};

/// A limited number of permits ([C1](crate::contract#c1-exclusion)). All users of one name must
/// agree on the limit.
///
/// Not reentrant: a holder that asks for more waits behind whoever waits already, who may wait for
/// this holder.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = lockkit_core::Locker::memory();
/// let uploads = locker.semaphore("uploads", 3)?;
/// let two = uploads.acquire_many(2).await?;
/// let third = uploads.acquire().await?;
/// assert!(uploads.try_acquire().await?.is_none());
/// two.release().await?;
/// third.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Semaphore {
    handle: Handle,
    limit: NonZeroU32,
}

impl Locker {
    /// The semaphore with this name, of `limit` permits. Does no I/O. All users of one name must
    /// agree on the limit.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`], [`ErrorKind::InvalidOption`] if `limit` is zero, or
    /// [`ErrorKind::Unsupported`] if the backend has no semaphores.
    pub fn semaphore(&self, name: &str, limit: u32) -> Result<Semaphore> {
        self.require(self.capabilities().permits, "semaphores")?;
        Semaphore::new(Handle::new(self, Kind::Semaphore, name)?, limit)
    }
}

impl Semaphore {
    pub(crate) fn new(handle: Handle, limit: u32) -> Result<Self> {
        let limit = NonZeroU32::new(limit).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOption, "a semaphore's limit must be at least 1")
        })?;
        Ok(Self { handle, limit })
    }

    /// Sets options of this lock. An option that is not set stays as it is: at first the locker's
    /// default.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if the options contradict each
    /// other.
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self { handle: self.handle.with_options(options)?, limit: self.limit })
    }

    /// The checked name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// How many permits there are.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.get()
    }

    /// Waits for one permit.
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
    pub async fn acquire(&self) -> Result<LockGuard> {
        self.acquire_many(1).await
    }

    /// Asks once for one permit; `None` if there is none.
    ///
    /// # Errors
    /// Whatever the store says. That the lock is taken is no error.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        self.try_acquire_many(1).await
    }

    /// Waits at most `wait` for one permit, whatever bound the options set.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when `wait` has passed, or whatever the
    /// store says, after asking again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<LockGuard> {
        self.acquire_many_timeout(1, wait).await
    }

    /// Waits for several permits at once.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when [`LockOptions::wait`] has passed. A
    /// store that can't be reached is asked again; for how long is bounded by `wait`, or without
    /// one by the ttl. Anything else at once. [`ErrorKind::InvalidOption`] if `permits` is zero or
    /// above the limit.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn acquire_many(&self, permits: u32) -> Result<LockGuard> {
        self.handle.lock(self.mode(permits)?).await
    }

    /// Asks once for several permits; `None` if there are too few.
    ///
    /// # Errors
    /// Whatever the store says. That the lock is taken is no error.
    /// [`ErrorKind::InvalidOption`] if `permits` is zero or above the limit.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<LockGuard>> {
        self.handle.try_lock(self.mode(permits)?).await
    }

    /// Waits at most `wait` for several permits, whatever bound the options set.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when `wait` has passed, [`ErrorKind::InvalidOption`] if `permits` is
    /// zero or above the limit, or whatever the store says, after asking again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, whatever it left in the store is taken back in the background.
    /// A call that is made anew in each turn of a `select!` loop loses its place in the queue each
    /// time: pin it outside the loop.
    pub async fn acquire_many_timeout(&self, permits: u32, wait: Duration) -> Result<LockGuard> {
        self.handle.lock_timeout(self.mode(permits)?, wait).await
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

    fn mode(&self, permits: u32) -> Result<Mode> {
        let limit = self.limit;
        match NonZeroU32::new(permits) {
            Some(count) if count <= limit => Ok(Mode::Permits { count, limit }),
            _ => {
                let text =
                    format!("{permits} permits were asked for, it must be between 1 and {limit}");
                Err(self.handle.explain(Error::new(ErrorKind::InvalidOption, text), "lock"))
            }
        }
    }
}
