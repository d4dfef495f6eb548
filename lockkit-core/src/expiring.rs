//! The warning before a hold ends.

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
        hold::{Ending, Hold},
        keeper,
    },
};

/// Tells that a hold will end soon. Cheap to clone and `'static`, to hand to tasks that work under
/// the lock.
///
/// `signal.await` and [`wait`](Self::wait) are the same. Made by
/// [`Hold::expiring`](crate::Hold::expiring).
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
    held: Arc<Hold>,
    before: Duration,
}

impl Expiring {
    pub(crate) fn new(agenda: Arc<Agenda>, held: Arc<Hold>, before: Duration) -> Self {
        Self { agenda, held, before }
    }

    /// Completes when the hold has `before` or less left, unless it is renewed meanwhile: then it
    /// waits on. Yields what is left; zero, at once, if the lock is lost. Never completes once the
    /// lock was given back.
    ///
    /// Each call looks anew: after a renewal the same signal warns again.
    ///
    /// Inside a tokio runtime it needs nobody's help. Outside of one it relies on the locker's
    /// background task.
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

    /// Outside a runtime there are no timers. Never completes if the background task will not run
    /// any more.
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
            // Nobody may wait for it any more.
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
