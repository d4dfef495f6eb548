//! Offers the counting semaphore to users.

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
/// The semaphore is not reentrant. If a holder asks for more permits, it waits behind the waiters
/// that came first, and one of them may wait for this holder.
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
    /// Returns the semaphore with this name and `limit` permits. Does no I/O. All users of one name
    /// must agree on the limit.
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

    /// Sets options of this lock. An option that is not set keeps its value, which is at first the
    /// locker's default.
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

    /// The number of permits in total.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.get()
    }

    /// Waits for one permit.
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
    pub async fn acquire(&self) -> Result<LockGuard> {
        self.acquire_many(1).await
    }

    /// Asks once for one permit. Returns `None` if none is free.
    ///
    /// # Errors
    /// Any error of the store. A lock that is taken is no error.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        self.try_acquire_many(1).await
    }

    /// Waits at most `wait` for one permit. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when `wait` has passed. Otherwise any
    /// error of the store, after the call has asked again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn acquire_timeout(&self, wait: Duration) -> Result<LockGuard> {
        self.acquire_many_timeout(1, wait).await
    }

    /// Waits for several permits at once.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when [`LockOptions::wait`] has passed. If
    /// the store can't be reached, the call asks again until `wait` has passed. Without `wait`, it
    /// asks again for the ttl. It returns any other error at once. [`ErrorKind::InvalidOption`] if
    /// `permits` is zero or above the limit.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn acquire_many(&self, permits: u32) -> Result<LockGuard> {
        self.handle.lock(self.mode(permits)?).await
    }

    /// Asks once for several permits. Returns `None` if too few are free.
    ///
    /// # Errors
    /// Any error of the store. A lock that is taken is no error. [`ErrorKind::InvalidOption`] if
    /// `permits` is zero or above the limit.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<LockGuard>> {
        self.handle.try_lock(self.mode(permits)?).await
    }

    /// Waits at most `wait` for several permits. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when `wait` has passed. [`ErrorKind::InvalidOption`] if `permits` is
    /// zero or above the limit. Otherwise any error of the store, after the call has asked again
    /// within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn acquire_many_timeout(&self, permits: u32, wait: Duration) -> Result<LockGuard> {
        self.handle.lock_timeout(self.mode(permits)?, wait).await
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

    fn mode(&self, permits: u32) -> Result<Mode> {
        let limit = self.limit;
        match NonZeroU32::new(permits) {
            Some(count) if count <= limit => Ok(Mode::Permits { count, limit }),
            _ => {
                let text = format!(
                    "the call asks for {permits} permits, but the number must be between 1 and \
                     {limit}"
                );
                Err(self.handle.explain(Error::new(ErrorKind::InvalidOption, text), "lock"))
            }
        }
    }
}
