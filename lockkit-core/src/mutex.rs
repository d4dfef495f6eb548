//! Offers the mutex to users.

use std::{future::Future, time::Duration};

use crate::{
    error::Result,
    guard::LockGuard,
    handle::Handle,
    hold::Hold,
    locker::Locker,
    name::{Kind, LockName},
    options::LockOptions,
    spi::{Inspection, Mode, Released},
    token::FencingToken,
};

/// A lock that one owner holds at a time ([C1](crate::contract#c1-exclusion)). The store wakes
/// waiters where it can push ([C8](crate::contract#c8-waiting)).
///
/// The mutex is not reentrant: if a holder locks the same name again, it waits for itself.
/// [`Owner`](crate::Owner) has a reentrant mutex.
///
/// ```
/// use lockkit_core::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let mutex = locker.mutex("orders/42")?;
/// let guard = mutex.lock().await?;
/// assert!(mutex.try_lock().await?.is_none()); // it is taken, which is no error
/// guard.release().await?; // an error if it was lost before
///
/// let token = mutex.scope(async |hold| hold.fencing_token()).await?; // locks, works, and gives it back
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    handle: Handle,
}

impl Locker {
    /// Returns the mutex with this name. Does no I/O.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), or
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the backend has no exclusive
    /// locks.
    pub fn mutex(&self, name: &str) -> Result<Mutex> {
        self.require(self.capabilities().exclusive, "exclusive locks")?;
        Ok(Mutex::new(Handle::new(self, Kind::Mutex, name)?))
    }
}

impl Mutex {
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle }
    }

    pub(crate) fn into_handle(self) -> Handle {
        self.handle
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

    /// Waits for the lock.
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
    pub async fn lock(&self) -> Result<LockGuard> {
        self.handle.lock(Mode::Exclusive).await
    }

    /// Asks once for the lock. Returns `None` if it is taken.
    ///
    /// # Errors
    /// Any error of the store. A lock that is taken is no error.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn try_lock(&self) -> Result<Option<LockGuard>> {
        self.handle.try_lock(Mode::Exclusive).await
    }

    /// Waits at most `wait` for the lock. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when `wait` has passed. Otherwise any
    /// error of the store, after the call has asked again within the bound.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task takes back whatever the call left
    /// in the store. A call that each turn of a `select!` loop makes anew loses its place in the
    /// queue. Pin the call outside the loop instead.
    pub async fn lock_timeout(&self, wait: Duration) -> Result<LockGuard> {
        self.handle.lock_timeout(Mode::Exclusive, wait).await
    }

    /// Locks, runs `work`, and releases. The future is `Send` if `work` and its future are.
    ///
    /// If the lock is lost, `work` is dropped at once.
    ///
    /// ```
    /// # async fn spawned(mutex: lockkit_core::Mutex) -> lockkit_core::Result<()> {
    /// let copied = mutex.scope(|hold| async move { format!("copied under {}", hold.fencing_token()) });
    /// println!("{}", copied.await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock), or [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was lost
    /// before `work` was done and the lock was released. A release that got no answer is no error,
    /// because `work` was done while the lock was held.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the background task releases the lock.
    pub async fn scope<F: Future>(&self, work: impl FnOnce(Hold) -> F) -> Result<F::Output> {
        let guard = self.lock().await?;
        let output = guard.run(work(guard.hold())).await?;
        guard.end_scope(output).await
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
