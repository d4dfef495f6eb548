//! Signals the loss of one of several locks.

use std::{fmt, future::IntoFuture};

use futures_util::future::{BoxFuture, FutureExt as _, select_all};

use crate::{lost::Lost, name::LockName, spi::LossReason};

/// Signals when one of several locks is lost, which one, and why. It is cheap to clone and
/// `'static`.
///
/// `signal.await` and [`wait`](Self::wait) are the same.
/// [`MultiGuard::lost`](super::MultiGuard::lost) makes the signal.
#[derive(Clone)]
pub struct AnyLost(Vec<Lost>);

impl AnyLost {
    pub(super) fn new(signals: Vec<Lost>) -> Self {
        Self(signals)
    }

    /// Whether one of the locks is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.0.iter().any(Lost::is_lost)
    }

    /// Completes when one of the locks is lost. It never completes once they were given back.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> (LockName, LossReason) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        let waits = self
            .0
            .iter()
            .map(|lost| async move { (lost.name().clone(), lost.wait().await) }.boxed());
        select_all(waits).await.0
    }

    pub(super) fn now(&self) -> Option<(LockName, LossReason)> {
        let lost = self.0.iter().find(|lost| lost.is_lost())?;
        Some((lost.name().clone(), lost.wait().now_or_never()?))
    }
}

impl IntoFuture for AnyLost {
    type Output = (LockName, LossReason);
    type IntoFuture = BoxFuture<'static, (LockName, LossReason)>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}

impl fmt::Debug for AnyLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self.0.iter().filter(|lost| lost.is_lost());
        f.debug_tuple("AnyLost").field(&lost.map(Lost::name).collect::<Vec<_>>()).finish()
    }
}
