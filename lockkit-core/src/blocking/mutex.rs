//! The blocking mutex.

use std::{sync::Arc, time::Duration};

use super::{background::Background, guard::LockGuard, hold::Hold, locker::Locker};
use crate::{error::Result, name::LockName, options::LockOptions};

/// A lock that one owner holds at a time. The methods mean the same as those of the async
/// [`Mutex`](crate::Mutex).
///
/// The mutex is not reentrant: if a thread locks the same name again, it waits for itself.
#[derive(Clone, Debug)]
pub struct Mutex {
    inner: crate::Mutex,
    background: Arc<Background>,
}

impl Locker {
    /// Returns the mutex with this name. Does no I/O.
    ///
    /// # Errors
    /// As [`Locker::mutex`](crate::Locker::mutex).
    pub fn mutex(&self, name: &str) -> Result<Mutex> {
        Ok(Mutex { inner: self.inner.mutex(name)?, background: Arc::clone(&self.background) })
    }
}

impl Mutex {
    /// Sets options of this lock. An option that is not set keeps its value, which is at first the
    /// locker's default.
    ///
    /// # Errors
    /// As [`Mutex::with_options`](crate::Mutex::with_options).
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self { inner: self.inner.with_options(options)?, background: self.background })
    }

    /// The checked name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock), and as [each call](Locker#errors).
    pub fn lock(&self) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.lock())
    }

    /// Asks once for the lock. Returns `None` if it is taken.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock), and as [each call](Locker#errors).
    pub fn try_lock(&self) -> Result<Option<LockGuard>> {
        LockGuard::try_lock(&self.background, self.inner.try_lock())
    }

    /// Waits at most `wait` for the lock. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// As [`Mutex::lock_timeout`](crate::Mutex::lock_timeout), and as [each call](Locker#errors).
    pub fn lock_timeout(&self, wait: Duration) -> Result<LockGuard> {
        LockGuard::lock(&self.background, self.inner.lock_timeout(wait))
    }

    /// Locks, runs `work` on this thread, and releases.
    ///
    /// A loss can't stop `work`. Long work asks [`Hold::is_held`] now and then. If `work` panics,
    /// the background thread releases the lock.
    ///
    /// # Errors
    /// As [`Mutex::scope`](crate::Mutex::scope), and as [each call](Locker#errors). After
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) the output of `work` is dropped.
    pub fn scope<T>(&self, work: impl FnOnce(Hold) -> T) -> Result<T> {
        let guard = self.lock()?;
        let output = work(guard.hold());
        guard.end_scope(output)
    }
}
