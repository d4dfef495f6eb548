//! The blocking semaphore.

use std::{sync::Arc, time::Duration};

use super::{background::Background, guard::LockGuard, locker::Locker};
use crate::{error::Result, name::LockName, options::LockOptions};

/// A limited number of permits. The methods mean the same as those of the async
/// [`Semaphore`](crate::Semaphore).
#[derive(Clone, Debug)]
pub struct Semaphore {
    inner: crate::Semaphore,
    background: Arc<Background>,
}

impl Locker {
    /// Returns the semaphore with this name and `limit` permits. Does no I/O. All users of one name
    /// must agree on the limit.
    ///
    /// # Errors
    /// As [`Locker::semaphore`](crate::Locker::semaphore).
    pub fn semaphore(&self, name: &str, limit: u32) -> Result<Semaphore> {
        let inner = self.inner.semaphore(name, limit)?;
        Ok(Semaphore { inner, background: Arc::clone(&self.background) })
    }
}

impl Semaphore {
    /// Sets options of this lock. An option that is not set keeps its value, which is at first the
    /// locker's default.
    ///
    /// # Errors
    /// As [`Semaphore::with_options`](crate::Semaphore::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self { inner: self.inner.with_options(options)?, background: self.background })
    }

    /// The checked name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// The number of permits in total.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.inner.limit()
    }

    /// Waits for one permit.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`](crate::Semaphore::acquire), and as [each call](Locker#errors).
    pub fn acquire(&self) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.acquire())
    }

    /// Asks once for one permit. Returns `None` if none is free.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire), and as [each
    /// call](Locker#errors).
    pub fn try_acquire(&self) -> Result<Option<LockGuard>> {
        LockGuard::try_lock(&self.background, self.inner.try_acquire())
    }

    /// Waits at most `wait` for one permit. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_timeout`](crate::Semaphore::acquire_timeout), and as [each
    /// call](Locker#errors).
    pub fn acquire_timeout(&self, wait: Duration) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.acquire_timeout(wait))
    }

    /// Waits for several permits at once.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_many`](crate::Semaphore::acquire_many), and as [each
    /// call](Locker#errors).
    pub fn acquire_many(&self, permits: u32) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.acquire_many(permits))
    }

    /// Asks once for several permits. Returns `None` if too few are free.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many), and as [each
    /// call](Locker#errors).
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<LockGuard>> {
        LockGuard::try_lock(&self.background, self.inner.try_acquire_many(permits))
    }

    /// Waits at most `wait` for several permits. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_many_timeout`](crate::Semaphore::acquire_many_timeout), and as [each
    /// call](Locker#errors).
    pub fn acquire_many_timeout(&self, permits: u32, wait: Duration) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.acquire_many_timeout(permits, wait))
    }
}
