//! The signal that a hold will end soon.

use std::{
    fmt,
    future::{IntoFuture, pending},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::{
    clock::Tick,
    driver::{
        agenda::{Agenda, Cleanup},
        held::{Ending, Held},
        keeper,
    },
};

/// A signal that completes when a hold will end soon. It is cheap to clone and `'static`, so that
/// tasks that work under the lock can have it.
///
/// `signal.await` and [`wait`](Self::wait) are the same. [`Hold::expiring`](crate::Hold::expiring)
/// makes this signal.
///
/// ```
/// use std::time::Duration;
/// use lockkit_core::{LockOptions, Locker, Renewal};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let by_hand = LockOptions::new().with_ttl(Duration::from_secs(10)).with_renewal(Renewal::Manual);
/// let guard = locker.mutex("orders/42")?.with_options(by_hand)?.lock().await?;
/// let left = guard.expiring(Duration::from_secs(10)).await; // 10 s before the end: at once
/// assert!(left <= Duration::from_secs(10));
/// guard.extend(Duration::from_secs(60)).await?;
/// assert!(guard.remaining() > Duration::from_secs(50));
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct Expiring {
    agenda: Arc<Agenda>,
    held: Arc<Held>,
    before: Duration,
}

impl Expiring {
    pub(crate) fn new(agenda: Arc<Agenda>, held: Arc<Held>, before: Duration) -> Self {
        Self { agenda, held, before }
    }

    /// Completes when the hold has `before` or less left, and returns the time that is left. A
    /// renewal before that makes it wait longer. If the lock is lost, it returns zero at once. It
    /// never completes once the lock was given back.
    ///
    /// Each call looks at the hold again: after a renewal the same signal warns again.
    ///
    /// Inside a tokio runtime this future has its own timer. Outside of a runtime it relies on the
    /// locker's background task.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> Duration {
        let held = &self.held;
        let locker = &held.locker();
        loop {
            let mut woken = pin!(held.signal.notified());
            woken.as_mut().enable();
            let closing = locker.closing.notified(); // hears what comes from here on
            let end = held.end_in_sight();
            let held_on = held.is_held();
            match held.ending() {
                Some(Ending::Lost(_)) => return Duration::ZERO,
                Some(Ending::GivenBack) => pending().await,
                None if !held_on => continue,
                None => {}
            }
            let now = locker.clock.now();
            let left = now.until(end);
            if left <= self.before {
                return left;
            }
            let at = if end == Tick::NEVER { end } else { now.after(left - self.before) };
            if keeper::ensure(&self.agenda).is_ok() {
                tokio::select! {
                    () = woken => {}
                    () = closing => {}
                    () = locker.clock.sleep_until(at) => {}
                }
            } else {
                tokio::select! {
                    () = woken => {}
                    () = closing => {}
                    () = self.woken_by_keeper(at) => {}
                }
            }
        }
    }

    /// Lets the background task wait, because there are no timers outside of a runtime. It never
    /// completes if the background task will not run any more.
    async fn woken_by_keeper(&self, at: Tick) {
        if at == Tick::NEVER {
            return pending().await;
        }
        let (mut wake, woken) = oneshot::channel();
        let held = Arc::clone(&self.held);
        self.agenda.push(Cleanup::Finish(Box::pin(async move {
            let mut woken = pin!(held.signal.notified());
            woken.as_mut().enable();
            if held.ending().is_none() {
                tokio::select! {
                    () = woken => {}
                    () = wake.closed() => {}
                    () = held.locker().clock.sleep_until(at) => {}
                }
            }
            // The receiver may be gone by now.
            let _ = wake.send(());
        })));
        if woken.await.is_err() {
            pending().await
        }
    }
}

impl IntoFuture for Expiring {
    type Output = Duration;
    type IntoFuture = BoxFuture<'static, Duration>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}

impl fmt::Debug for Expiring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expiring")
            .field("before", &self.before)
            .field("remaining", &self.held.remaining())
            .finish()
    }
}
