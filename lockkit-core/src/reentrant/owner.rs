//! Defines the owner that can take the same mutex again.

use std::{fmt, sync::Arc};

use super::{mutex::ReentrantMutex, table::Table};
use crate::{error::Result, locker::Locker};

/// An owner that can take a mutex again while it holds it. Clones are the same owner, wherever they
/// are used.
///
/// An owner is a handle that the program passes on; it is not the task or the thread. So work that
/// is split over tasks can share its locks. Tasks that know nothing of each other never count as
/// one owner. [`Locker::owner`] makes an owner.
///
/// ```
/// use lockkit_core::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let owner = locker.owner();
/// let mutex = owner.mutex("orders/42")?;
/// let outer = mutex.lock().await?;
/// let inner = mutex.lock().await?; // at once, without a request
/// assert!(locker.owner().mutex("orders/42")?.try_lock().await?.is_none()); // that is somebody else
/// assert_eq!(inner.fencing_token(), outer.fencing_token());
/// inner.release().await?;
/// outer.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct Owner {
    locker: Locker,
    table: Arc<Table>,
}

impl Locker {
    /// Makes a new owner, which can take its mutexes again while it holds them. Does no I/O.
    ///
    /// ```
    /// # async fn outer(locker: lockkit_core::Locker) -> lockkit_core::Result<()> {
    /// let owner = locker.owner();
    /// let outer = owner.mutex("orders/42")?.lock().await?;
    /// let inner = owner.mutex("orders/42")?.lock().await?; // at once, without a request
    /// assert_eq!(inner.fencing_token(), outer.fencing_token());
    /// inner.release().await?; // it is still held
    /// outer.release().await?; // and now it is free
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner::new(self.clone())
    }
}

impl Owner {
    pub(crate) fn new(locker: Locker) -> Self {
        Self { locker, table: Arc::default() }
    }

    /// Returns the mutex with this name, for this owner. Does no I/O. It is the same lock as
    /// [`Locker::mutex`]. While this owner holds the lock, all others are excluded, including plain
    /// mutexes of the same process.
    ///
    /// # Errors
    /// As [`Locker::mutex`].
    pub fn mutex(&self, name: &str) -> Result<ReentrantMutex> {
        Ok(ReentrantMutex::new(self.locker.mutex(name)?.into_handle(), Arc::clone(&self.table)))
    }
}

/// Shows the names that the owner holds or asks for.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("names", &self.table.names()).finish_non_exhaustive()
    }
}
