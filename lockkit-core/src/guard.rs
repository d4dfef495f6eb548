//! A held lock.

use std::{
    fmt,
    future::Future,
    ops::Deref,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle as Runtime, sync::oneshot};

use crate::{
    driver::{
        agenda::Cleanup,
        hold::{Hold as Held, lost_as},
        keeper::Keeper,
        release::release_held,
    },
    error::{Error, ErrorKind, Result},
    hold::Hold,
    lost::Lost,
    spi::{LossReason, Released},
    within::within,
};

/// A lock that is held, alone, shared, or by some permits, until a deadline that is known here
/// ([C3](crate::contract#c3-lease)).
///
/// It is a [`Hold`], with all that can be asked of one, which ends with the guard.
///
/// A holder that is paused after its last check may act late. Only a resource that compares
/// [`fencing_token`](Hold::fencing_token) and refuses a smaller one than it has seen can stop it.
///
/// ```
/// use lockkit_core::{ErrorKind, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// let token = guard.fencing_token().get(); // goes along with each write
/// // Dropped if the lock is lost.
/// let written = guard.run(async { format!("UPDATE … WHERE token <= {token}") }).await?;
/// assert!(guard.is_held());
/// match guard.release().await {
///     Ok(()) => println!("{written}: all of it under the lock"),
///     Err(lost) if lost.kind() == ErrorKind::Lost => println!("{written}: somebody else may have had the lock"),
///     Err(unknown) => println!("{written}: the lock is free when its lease ends: {unknown}"),
/// }
/// # locker.shutdown().await
/// # }
/// ```
///
/// # Drop
/// Dropping the guard is a best-effort release ([C7](crate::contract#c7-release)): it neither
/// blocks nor reports anything, and works outside a runtime too. The locker's background task does
/// it soon; [`Locker::shutdown`](crate::Locker::shutdown) waits for it. Prefer
/// [`release`](Self::release), which alone can tell that the lock had been lost.
#[must_use = "dropping the guard gives the lock up"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    hold: Hold,
    /// Has the locker's background task at work. `None` once nothing is left for the drop.
    keeper: Option<Arc<Keeper>>,
}

impl LockGuard {
    pub(crate) fn new(held: Arc<Held>, keeper: Arc<Keeper>) -> Self {
        Self { hold: Hold::new(held, Arc::clone(keeper.agenda())), keeper: Some(keeper) }
    }

    /// A view of this hold, for others to work under it. It ends with the guard.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Runs `work` for as long as the lock is held.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] when the lock is lost before `work` is done; `work` is dropped then.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the lock stays held.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output> {
        let lost = self.lost();
        tokio::select! {
            biased;
            _ = lost.wait() => Err(self.hold.lost_error("run")),
            output = work => {
                if self.is_held() { Ok(output) } else { Err(self.hold.lost_error("run")) }
            }
        }
    }

    /// Gives the guard up and keeps the lock, which nobody releases any more.
    ///
    /// With [`Renewal::Auto`](crate::Renewal::Auto) it is renewed until
    /// [`max_hold`](crate::LockOptions::max_hold) ends it, the locker is
    /// [shut down](crate::Locker::shutdown), the runtime that the locker works on ends, or the
    /// process does. With [`Renewal::Manual`](crate::Renewal::Manual) it lapses with its lease
    /// (less the margin for drift): so a job keeps others from running again for a while. Either
    /// way the [signal](Lost) tells the end. A shutdown ends it at once and frees it in the store,
    /// whatever is left of its lease.
    ///
    /// For as long as it is held, the locker's background task stays at work, and with it the
    /// connection, even when every [`Locker`](crate::Locker) is gone. On a store where a lock
    /// belongs to a session or a connection ([`LeaseScope`](crate::spi::LeaseScope)), a process
    /// that ends frees it then, whatever is left of its lease, and a manual one may be held for as
    /// long as that session or connection lives.
    pub fn leak(mut self) -> Lost {
        if let Some(keeper) = self.keeper.take() {
            self.agenda().leak(self.held(), keeper);
        }
        self.lost()
    }

    /// Gives the lock back and says what was true: it was ours until now, and is free.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if it was lost before: somebody else may have worked at the same time.
    ///
    /// Any other error means that the outcome is unknown. The store was asked, again and again,
    /// until the end of the lease or twice the operation timeout, whichever came first; the rest is
    /// done in the background, and the lease ends the lock at the latest. Where the store has no
    /// leases, its backend frees the lock when it can, or at its end.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, the release is finished in the background.
    #[doc(alias = "unlock")]
    pub async fn release(mut self) -> Result<()> {
        self.give_back().await
    }

    /// As [`release`](Self::release); nothing is left for the drop.
    pub(crate) async fn give_back(&mut self) -> Result<()> {
        // The background task is at work until this call ends.
        let _keeper = self.keeper.take();
        let held = self.held();
        let agenda = self.agenda();
        let left = held.remaining();
        if left.is_zero() || !held.give_back() {
            agenda.retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
            return Err(self.lost_error("release"));
        }
        let lease = held.locker().clock.now().until(held.lease_end());
        let bound = lease.min(held.limits().op_timeout * 2);
        if let Some(attachment) = held.attachment() {
            // As when it is dropped: the release follows.
            let _ = catch_unwind(AssertUnwindSafe(|| attachment.guard_released()));
        }
        let released = if Runtime::try_current().is_ok() {
            self.release_inline(bound).await?
        } else {
            self.release_by_keeper().await?
        };
        match released {
            Released::Freed => Ok(()),
            Released::NotHeld => Err(self.explain(lost_as(LossReason::Evicted), "release")),
        }
    }

    async fn release_inline(&self, bound: Duration) -> Result<Released> {
        let held = self.held();
        let agenda = self.agenda();
        agenda.retire(held, None);
        let releasing = self.finishing(release_held(Arc::clone(agenda), Arc::clone(held)));
        within(bound, releasing).await.unwrap_or_else(|| {
            let text =
                format!("the store did not answer within {bound:?}; {}", held.locker().last_resort);
            let error = Error::new(ErrorKind::Unavailable, text).with_outcome_unknown();
            Err(self.explain(error, "release"))
        })
    }

    /// Another guard gives the hold back.
    pub(crate) fn disarm(&mut self) {
        self.keeper = None;
    }

    /// Outside a runtime there are no timers to bound a request with: the background task does it.
    async fn release_by_keeper(&self) -> Result<Released> {
        let (reply, outcome) = oneshot::channel();
        let cleanup = Cleanup::Release(Arc::clone(self.held()), Some(reply));
        self.agenda().retire(self.held(), Some(cleanup));
        outcome.await.unwrap_or_else(|_| Err(self.no_runtime("release").with_outcome_unknown()))
    }

    fn no_runtime(&self, operation: &'static str) -> Error {
        let last_resort = self.held().locker().last_resort;
        let text =
            format!("there is no tokio runtime here, and the locker's own has gone; {last_resort}");
        self.explain(Error::new(ErrorKind::NoRuntime, text), operation)
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
        f.debug_tuple("LockGuard").field(&self.hold).finish()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.keeper.is_none() {
            return;
        }
        let held = self.held();
        // Asking first notices a deadline that has passed: that is a loss, which nobody may have
        // noticed yet.
        if held.is_held() {
            held.give_back();
        }
        if let Some(attachment) = held.attachment() {
            // A panic hurts no lock: the panic hook has told it, and the release follows.
            let _ = catch_unwind(AssertUnwindSafe(|| attachment.guard_dropped()));
        }
        self.agenda().retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
    }
}
