//! Offers the mutex that its owner can take again.

use std::{sync::Arc, time::Duration};

use super::{
    guard::ReentrantGuard,
    table::{Asker, Asking, End, Part, Table},
};
use crate::{
    driver::request::Bound,
    error::{Error, ErrorKind, ErrorStatus, Result},
    guard::LockGuard,
    handle::Handle,
    name::LockName,
    options::LockOptions,
    spi::Mode,
    within::within,
};

/// A mutex that its [`Owner`](super::Owner) can take again while it holds it, without a request to
/// the store.
///
/// All guards of one owner share one hold: one lease and one fencing token. The last guard gives
/// the hold back. If the hold is lost, it is lost for all its guards. The owner can then take the
/// mutex again only after all these guards are dropped.
///
/// The options of the call that asked the store apply to the whole hold. Of the options of a call
/// that takes the mutex again, only the bound on waiting applies.
///
/// ```
/// use lockkit_core::{Locker, ReentrantMutex, Result};
/// /// Called under the lock and without it.
/// async fn audit(mutex: &ReentrantMutex) -> Result<()> {
///     let guard = mutex.lock().await?;
///     guard.release().await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let locker = Locker::memory();
/// let mutex = locker.owner().mutex("orders/42")?;
/// audit(&mutex).await?;
/// let guard = mutex.lock().await?;
/// audit(&mutex).await?; // has it already
/// assert!(guard.is_held());
/// guard.release().await?;
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ReentrantMutex {
    handle: Handle,
    table: Arc<Table>,
}

impl ReentrantMutex {
    pub(super) fn new(handle: Handle, table: Arc<Table>) -> Self {
        Self { handle, table }
    }

    /// Sets options of this lock. An option that is not set keeps its value, which is at first the
    /// locker's default.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if the options contradict each other.
    pub fn with_options(self, options: LockOptions) -> Result<Self> {
        Ok(Self { handle: self.handle.with_options(options)?, table: self.table })
    }

    /// The checked name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// Takes the lock again at once if its owner holds it. Otherwise waits for the lock.
    ///
    /// Only one call of an owner asks the store; the other calls of this owner wait for that call.
    /// If that call is cancelled or fails, a waiting call asks the store itself, from a new place
    /// in the queue. There is one exception, for calls without a bound on waiting. If such a call
    /// gives up because the store stays in trouble, others without a bound end with the same error.
    ///
    /// A call that is kept and not polled holds up the other calls of its owner.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock). [`ErrorKind::Lost`] if a hold of this owner was lost
    /// and some of its guards still live, because the owner may still work under them.
    ///
    /// # Cancel safety
    /// Cancel safe: as [`Mutex::lock`](crate::Mutex::lock). Other calls of the same owner continue.
    pub async fn lock(&self) -> Result<ReentrantGuard> {
        self.lock_within(self.handle.bound()).await
    }

    /// Takes the lock again at once if its owner holds it. Otherwise asks once. Returns `None` if
    /// the lock is taken, or while another call of the same owner waits for it.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock), or [`ErrorKind::Lost`] as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Cancel safe, as [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<ReentrantGuard>> {
        self.acquire(Bound::Try).await
    }

    /// Takes the lock again at once if its owner holds it. Otherwise waits for it, at most for
    /// `wait`. This bound replaces the bound of the options.
    ///
    /// # Errors
    /// As [`Mutex::lock_timeout`](crate::Mutex::lock_timeout), or [`ErrorKind::Lost`] as
    /// [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// Cancel safe, as [`lock`](Self::lock).
    pub async fn lock_timeout(&self, wait: Duration) -> Result<ReentrantGuard> {
        self.lock_within(Bound::Within(wait)).await
    }

    async fn lock_within(&self, bound: Bound) -> Result<ReentrantGuard> {
        self.acquire(bound).await?.ok_or_else(|| self.handle.timeout(bound))
    }

    async fn acquire(&self, bound: Bound) -> Result<Option<ReentrantGuard>> {
        let bound = if let Bound::Within(Duration::ZERO) = bound { Bound::Try } else { bound };
        let tries = matches!(bound, Bound::Try);
        let clock = self.handle.clock();
        let started = clock.now();
        loop {
            let left = match bound {
                Bound::Within(wait) => clock.now().until(started.after(wait)),
                Bound::Forever | Bound::Try => Duration::MAX,
            };
            match self.table.enter(self.name(), bound, self.handle.limits().ttl) {
                Part::Join(held) => {
                    let guard = self.guard(self.handle.another_guard(held));
                    // The old runtime may have ended. Without a runtime there is nothing to do
                    // here.
                    let _ = self.handle.ensure_runtime();
                    return if guard.is_held() { Ok(Some(guard)) } else { Err(self.lost(&guard)) };
                }
                Part::Ask(_) if left.is_zero() => return Ok(None),
                Part::Ask(asker) => {
                    let rest =
                        if let Bound::Within(_) = bound { Bound::Within(left) } else { bound };
                    return self.ask(asker, rest).await;
                }
                Part::Wait(asking) if tries && !matches!(asking.bound, Bound::Try) => {
                    return Ok(None);
                }
                Part::Wait(asking) => {
                    self.handle.ensure_runtime()?;
                    let locker = self.handle.locker().keeper.locker();
                    let closing = locker.closing.notified(); // hears what comes from here on
                    locker.check_open().map_err(|closed| self.handle.explain(closed, "lock"))?;
                    let end = async {
                        tokio::select! {
                            end = asking.end.wait() => end,
                            () = closing => &End::Open,
                        }
                    };
                    // The task of the other call may poll it no longer, so this wait has a bound.
                    let patience = if tries { self.handle.op_timeout() } else { left };
                    match within(patience, end).await {
                        None => return Ok(None),
                        // The other call asked the store during this call, so its answer counts
                        // here too.
                        Some(End::Taken) if tries => return Ok(None),
                        Some(End::Failed(error)) if self.concerns(error, &asking, bound) => {
                            return Err(error.copy());
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }

    /// Asks the store for all calls of this owner.
    async fn ask(&self, asker: Asker, bound: Bound) -> Result<Option<ReentrantGuard>> {
        match self.handle.acquire(Mode::Exclusive, bound).await {
            Ok(Some(guard)) => {
                asker.won(guard.held());
                Ok(Some(self.guard(guard)))
            }
            Ok(None) => {
                asker.ends(End::Taken);
                Ok(None)
            }
            Err(error) => {
                asker.ends(End::Failed(error.copy()));
                Err(error)
            }
        }
    }

    /// Whether the error of the call that asked is also an answer for a call that waited for it.
    /// This is so if the store is in trouble, and the asking call tolerated that for at least as
    /// long as the waiting call would.
    fn concerns(&self, error: &Error, asking: &Asking, bound: Bound) -> bool {
        let alike = matches!(
            (asking.bound, bound),
            (Bound::Forever, Bound::Forever) | (Bound::Try, Bound::Try)
        );
        alike && asking.ttl >= self.handle.limits().ttl && error.status() != ErrorStatus::Permanent
    }

    fn guard(&self, guard: LockGuard) -> ReentrantGuard {
        ReentrantGuard::new(guard, Arc::clone(&self.table))
    }

    fn lost(&self, guard: &ReentrantGuard) -> Error {
        let lost = guard.lost_error("lock");
        let text = format!(
            "{}, and guards of it still exist; drop these guards before you take the lock again",
            lost.context()
        );
        self.handle.explain(Error::new(ErrorKind::Lost, text), "lock")
    }
}
