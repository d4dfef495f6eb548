//! Who may take the same mutex again.

use std::{fmt, sync::Arc};

use super::{mutex::ReentrantMutex, table::Table};
use crate::{error::Result, locker::Locker};

/// One who may take a mutex again that it has already. Clones are the same owner, wherever they go.
///
/// It is a handle that is passed on, and not the task or the thread: so work that is split over
/// tasks can share what it holds, and tasks that know nothing of each other are never mistaken for
/// one. Made by [`Locker::owner`].
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
    /// A new owner, whose mutexes can be taken again while it has them. Does no I/O.
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

    /// The mutex with this name, for this owner. Does no I/O. It is the same lock as
    /// [`Locker::mutex`]: all others, plain mutexes of the same process too, are excluded while
    /// this owner holds it.
    ///
    /// # Errors
    /// As [`Locker::mutex`].
    pub fn mutex(&self, name: &str) -> Result<ReentrantMutex> {
        Ok(ReentrantMutex::new(self.locker.mutex(name)?.into_handle(), Arc::clone(&self.table)))
    }
}

/// Shows what it holds or asks for.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("names", &self.table.names()).finish_non_exhaustive()
    }
}
