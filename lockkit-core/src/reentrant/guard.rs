//! One of the guards of an owner's hold.

use std::{fmt, ops::Deref, sync::Arc};

use super::table::Table;
use crate::{error::Result, guard::LockGuard, hold::Hold};

/// One of the guards of a [`Hold`] that its [`Owner`](super::Owner) took once or more. The hold is
/// the same for all of them, and ends with the last one.
///
/// # Drop
/// The last one dropped gives the hold back, as a [`LockGuard`] does. Prefer
/// [`release`](Self::release), which alone can tell that the lock had been lost.
#[must_use = "dropping the guard gives the lock up, if it is the last one"]
#[clippy::has_significant_drop]
pub struct ReentrantGuard {
    /// Each has one of its own of the same hold; the last one gives it back.
    guard: LockGuard,
    table: Arc<Table>,
    left: bool,
}

impl ReentrantGuard {
    /// Counted in the table.
    pub(super) fn new(guard: LockGuard, table: Arc<Table>) -> Self {
        Self { guard, table, left: false }
    }

    /// Gives this guard back, and the lock if it is the last one, and says what was true: the lock
    /// was ours until now.
    ///
    /// # Errors
    /// As [`LockGuard::release`]; only the release of the last guard asks the store. Each of them
    /// tells [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the hold was lost before.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, the release is finished in the background.
    pub async fn release(mut self) -> Result<()> {
        // Asked before it leaves: after that another one may be the last, and give the hold back.
        let lost = if self.is_held() { None } else { Some(self.lost_error("release")) };
        if self.leave() {
            return self.guard.give_back().await;
        }
        lost.map_or(Ok(()), Err)
    }

    /// True for the last one, whose [`LockGuard`] is to give the hold back.
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
