//! Defines the guard of a held lock.

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
        held::{Held, lost_as},
        keeper::Keeper,
        release::release_held,
    },
    error::{Error, ErrorKind, Result},
    hold::Hold,
    lost::Lost,
    spi::{LossReason, Released},
    within::within,
};

/// A lock that is held exclusively, shared, or as some permits, until a deadline that the guard
/// knows ([C3](crate::contract#c3-lease)).
///
/// The guard dereferences to its [`Hold`] and has all methods of it. The hold ends with the guard.
///
/// A holder that is paused after its last check may act late. Only the protected resource can stop
/// such a holder. The resource compares [`fencing_token`](Hold::fencing_token), and refuses a token
/// that is smaller than one it has seen.
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
/// Dropping the guard is a best-effort release ([C7](crate::contract#c7-release)). The drop neither
/// blocks nor reports anything, and works outside a runtime too. The locker's background task sends
/// the release soon, and [`Locker::shutdown`](crate::Locker::shutdown) waits for it. Prefer
/// [`release`](Self::release): only a release can report that the lock had been lost.
#[must_use = "dropping the guard gives the lock up"]
#[clippy::has_significant_drop]
pub struct LockGuard {
    hold: Hold,
    /// Keeps the locker's background task running. `None` once the drop has nothing left to do.
    keeper: Option<Arc<Keeper>>,
}

impl LockGuard {
    pub(crate) fn new(held: Arc<Held>, keeper: Arc<Keeper>) -> Self {
        Self { hold: Hold::new(held, Arc::clone(keeper.agenda())), keeper: Some(keeper) }
    }

    /// A view of this hold, for tasks that work under it. The view ends with the guard.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.hold.clone()
    }

    /// Runs `work` for as long as the lock is held.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock is lost before `work` is done; `work` is then dropped.
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

    /// Gives up the guard and keeps the lock. No guard can release the lock any more.
    ///
    /// With [`Renewal::Auto`](crate::Renewal::Auto) the lock is renewed until
    /// [`max_hold`](crate::LockOptions::max_hold) ends it, or the locker is [shut
    /// down](crate::Locker::shutdown). The renewal also ends when the locker's runtime or the
    /// process ends.
    ///
    /// With [`Renewal::Manual`](crate::Renewal::Manual) the lock lapses with its lease (less the
    /// margin for drift). In this way a job can keep others from running again for a while.
    ///
    /// Either way the [signal](Lost) reports the end. A shutdown ends the lock at once and frees it
    /// in the store, whatever is left of its lease.
    ///
    /// For as long as the lock is held, the locker's background task and the connection stay alive,
    /// even when every [`Locker`](crate::Locker) is dropped.
    ///
    /// On some stores a lock belongs to a session or a connection
    /// ([`LeaseScope`](crate::spi::LeaseScope)). There the end of the process frees the lock,
    /// whatever is left of its lease. With manual renewal, a lock there may be held for as long as
    /// that session or connection lives.
    pub fn leak(mut self) -> Lost {
        if let Some(keeper) = self.keeper.take() {
            self.agenda().leak(self.held(), keeper);
        }
        self.lost()
    }

    /// Gives the lock back. `Ok` means that the lock was held until now and is free.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock was lost before: another holder may have worked at the same
    /// time.
    ///
    /// After any other error, the lock may still be held, until its lease ends. lockkit repeats the
    /// request after a temporary error, until the end of the lease or for twice the operation
    /// timeout, whichever comes first. If the store did not answer by then, the background task
    /// continues. Where the store has no leases, its backend frees the lock when it can, or at its
    /// end.
    ///
    /// # Cancel safety
    /// Cancel safe: if the call is dropped, the background task finishes the release.
    #[doc(alias = "unlock")]
    pub async fn release(mut self) -> Result<()> {
        self.give_back().await
    }

    /// Releases the lock after a scope, and returns the output of its work. A release that got no
    /// answer is no error, because the work was done while the lock was held.
    pub(crate) async fn end_scope<T>(self, output: T) -> Result<T> {
        match self.release().await {
            Err(lost) if lost.kind() == ErrorKind::Lost => Err(lost),
            Ok(()) | Err(_) => Ok(output),
        }
    }

    /// As [`release`](Self::release); afterwards the drop of the guard has nothing left to do.
    pub(crate) async fn give_back(&mut self) -> Result<()> {
        // This keeps the background task running until the call ends.
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
            // A panic is caught, as in the drop of the guard: the release follows.
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

    /// Leaves the release of the hold to another guard, or to the claim that resumes it.
    pub(crate) fn disarm(&mut self) {
        self.keeper = None;
    }

    /// Lets the background task release the lock, because outside a runtime no timer can bound a
    /// request.
    async fn release_by_keeper(&self) -> Result<Released> {
        let (reply, outcome) = oneshot::channel();
        let cleanup = Cleanup::Release(Arc::clone(self.held()), Some(reply));
        self.agenda().retire(self.held(), Some(cleanup));
        outcome.await.unwrap_or_else(|_| Err(self.no_runtime("release").with_outcome_unknown()))
    }

    fn no_runtime(&self, operation: &'static str) -> Error {
        let last_resort = self.held().locker().last_resort;
        let text = format!(
            "there is no tokio runtime here, and the locker's own runtime has ended; {last_resort}"
        );
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
        // `is_held` notices a deadline that has passed. That is a loss, which may not have been
        // noticed before.
        if held.is_held() {
            held.give_back();
        }
        if let Some(attachment) = held.attachment() {
            // A panic of the attachment harms no lock: the panic hook has reported it, and the
            // release follows.
            let _ = catch_unwind(AssertUnwindSafe(|| attachment.guard_dropped()));
        }
        self.agenda().retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
    }
}
