//! The mutex of one owner.

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

/// A mutex that its [`Owner`](super::Owner) can take again while it has it, without a request to
/// the store.
///
/// All guards of one owner stand for one hold: one lease, one fencing token. It is given back with
/// the last guard. When it is lost, it is lost for all of them, and the owner can't take it again
/// before all of them are gone.
///
/// The options of the call that asked the store count for the whole hold; of one that takes it
/// again, only the bound on waiting does.
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

    /// Sets options of this lock. An option that is not set stays as it is: at first the locker's
    /// default.
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

    /// Takes the lock again at once if its owner has it; else waits for it.
    ///
    /// While another call of the same owner waits for it, this one waits for that: so one of them
    /// asks the store. When that one is cancelled or fails, this one asks anew, in a new place of
    /// the queue; but when a call without a bound on waiting finds the store gone for good, others
    /// without a bound end with the same error. A call that is kept and not polled holds up the
    /// others of its owner.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock), or [`ErrorKind::Lost`] while guards live of a hold
    /// of this owner that was lost: they still believe in it.
    ///
    /// # Cancel safety
    /// Cancel safe: as [`Mutex::lock`](crate::Mutex::lock), and other calls of the same owner go
    /// on.
    pub async fn lock(&self) -> Result<ReentrantGuard> {
        self.lock_within(self.handle.bound()).await
    }

    /// Takes the lock again at once if its owner has it; else asks once. `None` if it is taken, or
    /// while another call of the same owner waits for it.
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

    /// Takes the lock again at once if its owner has it; else waits for it for at most `wait`,
    /// whatever bound the options set.
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
                    // Its runtime may have gone; outside of one there is nothing to be done.
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
                    // Nobody may poll the other call any more.
                    let patience = if tries { self.handle.op_timeout() } else { left };
                    match within(patience, end).await {
                        None => return Ok(None),
                        // It asked during this call, too.
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

    /// Asks the store, for all calls of this owner.
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

    /// Whether the error of the call that asked is an answer to one that waited for it: the store
    /// is in trouble, and both would have put up with that for equally long.
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
            "{}, and guards of it still live: drop them before you take it again",
            lost.context()
        );
        self.handle.explain(Error::new(ErrorKind::Lost, text), "lock")
    }
}
