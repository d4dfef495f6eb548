//! The blocking read/write lock.

use std::{sync::Arc, time::Duration};

use super::{background::Background, guard::LockGuard, locker::Locker};
use crate::{error::Result, name::LockName, options::LockOptions};

/// A lock that many readers or one writer hold at a time. The methods mean the same as those of the
/// async [`RwLock`](crate::RwLock).
#[derive(Clone, Debug)]
pub struct RwLock {
    inner: crate::RwLock,
    background: Arc<Background>,
}

impl Locker {
    /// Returns the read/write lock with this name. Does no I/O.
    ///
    /// # Errors
    /// As [`Locker::rw_lock`](crate::Locker::rw_lock).
    pub fn rw_lock(&self, name: &str) -> Result<RwLock> {
        Ok(RwLock { inner: self.inner.rw_lock(name)?, background: Arc::clone(&self.background) })
    }
}

impl RwLock {
    /// Sets options of this lock. An option that is not set keeps its value, which is at first the
    /// locker's default.
    ///
    /// # Errors
    /// As [`RwLock::with_options`](crate::RwLock::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self { inner: self.inner.with_options(options)?, background: self.background })
    }

    /// The checked name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// Waits for the lock as a reader, together with other readers.
    ///
    /// # Errors
    /// As [`RwLock::read`](crate::RwLock::read), and as [each call](Locker#errors).
    pub fn read(&self) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.read())
    }

    /// Asks once for the lock as a reader, together with other readers. Returns `None` if it is
    /// taken.
    ///
    /// # Errors
    /// As [`RwLock::try_read`](crate::RwLock::try_read), and as [each call](Locker#errors).
    pub fn try_read(&self) -> Result<Option<LockGuard>> {
        LockGuard::try_lock(&self.background, self.inner.try_read())
    }

    /// Waits at most `wait` for the lock as a reader, together with other readers. This bound
    /// replaces the bound of the options.
    ///
    /// # Errors
    /// As [`RwLock::read_timeout`](crate::RwLock::read_timeout), and as [each call](Locker#errors).
    pub fn read_timeout(&self, wait: Duration) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.read_timeout(wait))
    }

    /// Waits for the lock as the only writer.
    ///
    /// # Errors
    /// As [`RwLock::write`](crate::RwLock::write), and as [each call](Locker#errors).
    pub fn write(&self) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.write())
    }

    /// Asks once for the lock as the only writer. Returns `None` if it is taken.
    ///
    /// # Errors
    /// As [`RwLock::try_write`](crate::RwLock::try_write), and as [each call](Locker#errors).
    pub fn try_write(&self) -> Result<Option<LockGuard>> {
        LockGuard::try_lock(&self.background, self.inner.try_write())
    }

    /// Waits at most `wait` for the lock as the only writer. This bound replaces the bound of the
    /// options.
    ///
    /// # Errors
    /// As [`RwLock::write_timeout`](crate::RwLock::write_timeout), and as [each
    /// call](Locker#errors).
    pub fn write_timeout(&self, wait: Duration) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.write_timeout(wait))
    }
}
