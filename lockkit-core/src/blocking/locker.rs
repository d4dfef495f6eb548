//! The blocking locker: a locker and the thread that runs its background task.

use std::{
    future::{Future, ready},
    sync::Arc,
    thread,
};

use super::background::Background;
use crate::{error::Result, options::LockOptions};

/// Makes locks whose calls block the calling thread, for programs without a tokio runtime. A locker
/// is cheap to clone; all clones share one connection and one background thread.
///
/// The methods mean the same as those of the async [`Locker`](crate::Locker).
///
/// ```
/// use std::{thread, time::Duration};
/// use lockkit_core::{LockOptions, blocking::Locker};
///
/// # fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::new(lockkit_core::Locker::memory())?;
/// let mutex = locker.mutex("orders/42")?;
/// let guard = mutex.lock()?;
/// assert!(mutex.try_lock()?.is_none()); // it is taken, which is no error
/// thread::sleep(Duration::from_millis(10)); // the background thread renews the lease
/// guard.release()?; // an error if it was lost before
///
/// let patient = LockOptions::new().with_wait(Duration::from_secs(5));
/// let token = mutex.with_options(patient)?.scope(|hold| hold.fencing_token())?;
/// println!("written under {token}");
/// locker.shutdown() // waits for the release of dropped guards
/// # }
/// ```
///
/// # The background thread
/// A tokio runtime runs on one thread per locker. It renews held locks, and it releases the locks
/// of dropped guards. The thread lives until the last locker, lock, guard and view is dropped, and
/// until all that is released. So a guard may outlive its locker.
///
/// The end of the process ends the thread. Call [`shutdown`](Self::shutdown) before, because it
/// waits for the release of dropped guards.
///
/// # Errors
/// Each call that asks the store has two more errors:
///
/// * [`ErrorKind::InsideRuntime`](crate::ErrorKind::InsideRuntime) inside a tokio runtime, also in
///   `spawn_blocking` and in an [`Observer`](crate::Observer). Use the async interface there. A
///   drop is allowed everywhere.
/// * [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) in a process that was forked without
///   `exec`, because the thread stays in the parent process. In the fork no guard is held, and the
///   drop of a guard releases nothing. The parent process still holds the lock.
#[derive(Clone, Debug)]
pub struct Locker {
    pub(super) inner: crate::Locker,
    pub(super) background: Arc<Background>,
}

impl Locker {
    /// Starts the background thread of a locker. Clones of the async locker remain usable, and they
    /// keep the thread alive as well.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) if the thread can't start, or
    /// [`ErrorKind::InsideRuntime`](crate::ErrorKind::InsideRuntime).
    pub fn new(locker: crate::Locker) -> Result<Self> {
        Self::open(ready(Ok(locker)))
    }

    /// Connects, and starts the background thread. The future may come from any call that makes a
    /// locker, such as [`Registry::connect`](crate::Registry::connect).
    ///
    /// ```
    /// use lockkit_core::{Registry, blocking::Locker};
    ///
    /// # fn main() -> lockkit_core::Result<()> {
    /// let registry = Registry::new();
    /// let locker = Locker::open(async {
    ///     Ok(registry.builder("memory://?ttl=10s").await?.token_base(1_000).build())
    /// })?;
    /// # locker.shutdown()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), or the error of the future.
    pub fn open(connecting: impl Future<Output = Result<crate::Locker>>) -> Result<Self> {
        let thread = thread::Builder::new().name("lockkit".to_owned());
        let (inner, background) = Background::start(thread, connecting)?;
        Ok(Self { inner, background: Arc::new(background) })
    }

    /// As [`Locker::with_defaults`](crate::Locker::with_defaults).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) if the options contradict each
    /// other.
    pub fn with_defaults(self, defaults: LockOptions) -> Result<Self> {
        Ok(Self { inner: self.inner.with_defaults(defaults)?, background: self.background })
    }

    /// The async locker, for calls that have no blocking form.
    #[must_use]
    pub fn as_async(&self) -> &crate::Locker {
        &self.inner
    }

    /// Runs a call of the async interface, and blocks until it ends.
    ///
    /// ```
    /// # fn main() -> lockkit_core::Result<()> {
    /// # let locker = lockkit_core::blocking::Locker::new(lockkit_core::Locker::memory())?;
    /// let both = locker.block_on(locker.as_async().lock_all(["account/7", "account/3"]))?;
    /// // … move the money …
    /// locker.block_on(both.release())?;
    /// # locker.shutdown()
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [each call](Locker#errors), or the error of `call`.
    pub fn block_on<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.background.block_on(call)
    }

    /// Ends the locker and all its clones in order, as
    /// [`Locker::shutdown`](crate::Locker::shutdown). Waiting calls of other threads end with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    /// As the async call, and as [each call](Locker#errors).
    pub fn shutdown(&self) -> Result<()> {
        self.block_on(self.inner.shutdown())
    }
}
