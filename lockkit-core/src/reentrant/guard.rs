//! Defines the guard of a reentrant mutex; an owner may have several for one hold.

use std::{fmt, ops::Deref, sync::Arc};

use super::table::Table;
use crate::{error::Result, guard::LockGuard, hold::Hold};

/// One of the guards of a [`Hold`] that its [`Owner`](super::Owner) took once or more. All these
/// guards share the hold, which ends with the last guard.
///
/// # Drop
/// The drop of the last guard gives the hold back, as the drop of a [`LockGuard`] does. Prefer
/// [`release`](Self::release): only a release can report that the lock had been lost.
#[must_use = "dropping the guard gives the lock up, if it is the last one"]
#[clippy::has_significant_drop]
pub struct ReentrantGuard {
    /// Each reentrant guard has its own lock guard of the same hold; the last one gives the hold
    /// back.
    guard: LockGuard,
    table: Arc<Table>,
    left: bool,
}

impl ReentrantGuard {
    /// Makes a guard that the table has already counted.
    pub(super) fn new(guard: LockGuard, table: Arc<Table>) -> Self {
        Self { guard, table, left: false }
    }

    /// Gives this guard back, and also the lock if this guard is the last one. `Ok` means that the
    /// lock was held until now.
    ///
    /// # Errors
    /// As [`LockGuard::release`]; only the release of the last guard asks the store. Each release
    /// returns [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the hold was lost before.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task finishes the release.
    pub async fn release(mut self) -> Result<()> {
        // This is checked before the guard leaves the table: after that, another guard may be the
        // last one and give the hold back.
        let lost = if self.is_held() { None } else { Some(self.lost_error("release")) };
        if self.leave() {
            return self.guard.give_back().await;
        }
        lost.map_or(Ok(()), Err)
    }

    /// Returns true for the last guard, whose [`LockGuard`] must give the hold back.
    fn leave(&mut self) -> bool {
        self.left = true;
        let last = self.table.leave(self.guard.name());
        if !last {
            self.guard.disarm();
        }
        last
    }
}

impl Deref for ReentrantGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.guard
    }
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        if !self.left {
            self.leave();
        }
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReentrantGuard").field(&self.guard).finish()
    }
}
