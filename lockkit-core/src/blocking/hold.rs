//! The blocking view of a held lock, and its loss signal.

use std::{fmt, sync::Arc, time::Duration};

use super::background::Background;
use crate::{error::Result, name::LockName, spi::LossReason, token::FencingToken, within::within};

/// A view of a held lock, for the threads that work under it. It is cheap to clone, and does not
/// keep the lock. The methods mean the same as those of the async [`Hold`](crate::Hold).
#[derive(Clone)]
pub struct Hold {
    inner: crate::Hold,
    pub(super) background: Arc<Background>,
}

impl Hold {
    pub(super) fn new(inner: crate::Hold, background: &Arc<Background>) -> Self {
        Self { inner, background: Arc::clone(background) }
    }

    /// The async view, for calls that have no blocking form.
    #[must_use]
    pub fn as_async(&self) -> &crate::Hold {
        &self.inner
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.inner.name()
    }

    /// The fencing token for the protected resource. The resource refuses a token that is smaller
    /// than one it has seen.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// Whether the lease is still valid, by the local clock and without I/O. Once false it stays
    /// false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.background.is_here() && self.inner.is_held()
    }

    /// How long the lease is still valid without another renewal. It is zero once the lock is lost
    /// or given back, and [`Duration::MAX`] where the store has no leases.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.background.is_here() { self.inner.remaining() } else { Duration::ZERO }
    }

    /// The signal that the lock is lost.
    #[must_use]
    pub fn lost(&self) -> Lost {
        Lost::new(self.inner.lost(), &self.background)
    }

    /// Renews the lease now.
    ///
    /// # Errors
    /// As [`Hold::renew`](crate::Hold::renew), and as [each call](super::Locker#errors).
    pub fn renew(&self) -> Result<()> {
        self.background.block_on(self.inner.renew())
    }

    /// Renews the lease now, once, for `lease` instead of the ttl. Returns how long the hold lasts
    /// without another renewal.
    ///
    /// # Errors
    /// As [`Hold::extend`](crate::Hold::extend), and as [each call](super::Locker#errors).
    pub fn extend(&self, lease: Duration) -> Result<Duration> {
        self.background.block_on(self.inner.extend(lease))
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}

/// The signal that a lock is lost, at the lock's deadline at the latest. It is cheap to clone.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::{LossReason, blocking::Locker};
///
/// # fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::new(lockkit_core::Locker::memory())?;
/// let guard = locker.mutex("orders/42")?.lock()?;
/// let lost = guard.lost();
/// assert_eq!(lost.wait_timeout(Duration::from_millis(10))?, None);
/// let operator = locker.as_async();
/// locker.block_on(operator.force_release(guard.name(), guard.fencing_token()))?;
/// guard.renew().unwrap_err(); // or the next renewal finds out
/// assert_eq!(lost.wait_timeout(Duration::from_secs(60))?, Some(LossReason::Evicted));
/// # locker.shutdown()
/// # }
/// ```
#[derive(Clone)]
pub struct Lost {
    inner: crate::Lost,
    background: Arc<Background>,
}

impl Lost {
    pub(super) fn new(inner: crate::Lost, background: &Arc<Background>) -> Self {
        Self { inner, background: Arc::clone(background) }
    }

    /// Whether the lock is lost. This is false while the lock is held, and after it was given back.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Waits until the lock is lost, at most for `timeout`. Returns `None` if it was not lost by
    /// then, and also if it was given back.
    ///
    /// # Errors
    /// As [each call](super::Locker#errors).
    pub fn wait_timeout(&self, timeout: Duration) -> Result<Option<LossReason>> {
        self.background.block_on(async { Ok(within(timeout, self.inner.wait()).await) })
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner, f)
    }
}
