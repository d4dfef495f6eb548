//! The signal that a lock was lost (C3).

use std::{fmt, future::IntoFuture, pin::pin, sync::Arc};

use futures_util::future::BoxFuture;
use tokio::runtime::Handle as Runtime;

use crate::{
    driver::held::{Ending, Held},
    name::LockName,
    spi::LossReason,
};

/// A signal that completes when a lock is lost, at the lock's deadline at the latest
/// ([C3](crate::contract#c3-lease)). It is cheap to clone and `'static`, so that tasks that work
/// under the lock can have it.
///
/// `signal.await` and [`wait`](Self::wait) are the same.
///
/// ```
/// use lockkit_core::{LossReason, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// let lost = guard.lost();
/// let work = tokio::spawn(async move {
///     tokio::select! {
///         reason = lost.wait() => Err(reason), // stop: it may be another's by now
///         () = std::future::pending() => Ok("done"),
///     }
/// });
/// locker.force_release(guard.name(), guard.fencing_token()).await?;
/// guard.renew().await.unwrap_err(); // or the next renewal finds out
/// assert_eq!(work.await.unwrap(), Err(LossReason::Evicted));
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct Lost(pub(crate) Arc<Held>);

impl Lost {
    pub(crate) fn new(held: Arc<Held>) -> Self {
        Self(held)
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.0.name
    }

    /// Whether the lock is lost. This is false while the lock is held, and after it was given back.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        // `is_held` comes first, because it notices a deadline that has passed.
        !self.0.is_held() && matches!(self.0.ending(), Some(Ending::Lost(_)))
    }

    /// Completes when the lock is lost. It never completes once the lock was given back.
    ///
    /// Inside a tokio runtime this future has its own timer for the local deadline. Outside of a
    /// runtime it relies on the locker's background task.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> LossReason {
        loop {
            let mut woken = pin!(self.0.signal.notified());
            woken.as_mut().enable();
            match self.0.ending() {
                Some(Ending::Lost(reason)) => return reason,
                Some(Ending::GivenBack) => std::future::pending().await,
                None if !self.0.is_held() => {}
                None if Runtime::try_current().is_err() => woken.await,
                None => tokio::select! {
                    biased; // either leads to another look
                    () = woken => {}
                    () = self.0.locker().clock.sleep_until(self.0.deadline()) => {}
                },
            }
        }
    }
}

impl IntoFuture for Lost {
    type Output = LossReason;
    type IntoFuture = BoxFuture<'static, LossReason>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lost").field(&self.is_lost()).finish()
    }
}
