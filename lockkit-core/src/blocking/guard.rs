//! The blocking guard, which all kinds of locks share.

use std::{
    fmt,
    future::{Future, ready},
    ops::Deref,
    sync::Arc,
};

use super::{
    background::Background,
    hold::{Hold, Lost},
};
use crate::error::{Error, Result};

/// A lock that is held exclusively, shared, or as some permits. It dereferences to its [`Hold`].
/// The methods mean the same as those of the async [`LockGuard`](crate::LockGuard).
///
/// # Drop
/// Dropping the guard is a best-effort release. The drop neither blocks nor reports anything: the
/// background thread releases the lock soon. [`Locker::shutdown`](super::Locker::shutdown) waits
/// for that. Prefer [`release`](Self::release): only a release can report that the lock had been
/// lost.
#[must_use = "dropping the guard gives the lock up"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    guard: crate::LockGuard,
    hold: Hold,
}

impl LockGuard {
    pub(super) fn new(guard: crate::LockGuard, background: &Arc<Background>) -> Self {
        let hold = Hold::new(guard.hold(), background);
        Self { guard, hold }
    }

    /// Runs a call that takes a lock.
    pub(super) fn lock(
        background: &Arc<Background>,
        call: impl Future<Output = Result<crate::LockGuard>>,
    ) -> Result<Self> {
        Ok(Self::new(background.block_on(call)?, background))
    }

    /// Runs a call that takes a lock if it is free.
    pub(super) fn try_lock(
        background: &Arc<Background>,
        call: impl Future<Output = Result<Option<crate::LockGuard>>>,
    ) -> Result<Option<Self>> {
        Ok(background.block_on(call)?.map(|guard| Self::new(guard, background)))
    }

    /// A view of this hold, for threads that work under it. The view ends with the guard.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Gives up the guard and keeps the lock, as [`LockGuard::leak`](crate::LockGuard::leak). The
    /// background thread lives as long as the lock is held.
    pub fn leak(self) -> Lost {
        let Self { guard, hold } = self;
        Lost::new(guard.leak(), &hold.background)
    }

    /// Gives the lock back. `Ok` means that the lock was held until now and is free.
    ///
    /// # Errors
    /// As [`LockGuard::release`](crate::LockGuard::release), and as [each
    /// call](super::Locker#errors). After an error of the latter sort, the background thread
    /// releases the lock.
    #[doc(alias = "unlock")]
    pub fn release(self) -> Result<()> {
        let Self { guard, hold } = self;
        hold.background.check().map_err(Error::with_outcome_unknown)?;
        hold.background.block_on(guard.release())
    }

    /// Ends a scope: returns the output of its work if the lock was held until now.
    pub(super) fn end_scope<T>(self, output: T) -> Result<T> {
        let Self { guard, hold } = self;
        hold.background.block_on(async move {
            let output = guard.run(ready(output)).await?;
            guard.end_scope(output).await
        })
    }
}

impl Deref for LockGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.guard, f)
    }
}
