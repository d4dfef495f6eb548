//! A held lock.

use std::{
    any::Any,
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use tokio::{runtime::Handle as Runtime, sync::oneshot};

use crate::{
    driver::{
        agenda::{Agenda, Cleanup},
        finishing::Finishing,
        hold::Hold,
        keeper::Keeper,
        note::write_note,
        release::release_held,
        renew::renew_now,
    },
    error::{Error, ErrorKind, Result},
    expiring::Expiring,
    lost::Lost,
    name::LockName,
    options::{MAX_TTL, MIN_TTL},
    spi::{Attachment, Mode, Note, Noted, Released, check_noted},
    token::{FencingToken, OwnerId},
    within::within,
};

/// A lock that is held, alone, shared, or by some permits, until a deadline that is known here
/// ([C3](crate::contract#c3-lease)).
///
/// A holder that is paused after its last check may act late. Only a resource that compares
/// [`fencing_token`](Self::fencing_token) and refuses a smaller one than it has seen can stop it.
///
/// ```
/// use lockkit_core::{Locker, Released};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// let token = guard.fencing_token().get(); // goes along with each write
/// // Dropped if the lock is lost.
/// let written = guard.run(async { format!("UPDATE … WHERE token <= {token}") }).await?;
/// assert!(guard.is_held());
/// match guard.release().await? {
///     Released::Freed => println!("{written}: all of it under the lock"),
///     Released::NotHeld => println!("{written}: the lock was lost before, and somebody else may have had it"),
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
    held: Arc<Hold>,
    keeper: Arc<Keeper>,
    released: bool,
}

impl LockGuard {
    pub(crate) fn new(held: Arc<Hold>, keeper: Arc<Keeper>) -> Self {
        Self { held, keeper, released: false }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held.name
    }

    /// How it is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.held.mode
    }

    /// The identity of this grant's claim, as inspection shows it.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.held.owner()
    }

    /// The number to hand to the protected resource, which refuses a smaller one than it has seen.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.held.token()
    }

    /// Whether the lease still stands, by the local clock and without I/O.
    ///
    /// Once false it stays false. It turns false before the store can grant the lock to someone
    /// else.
    #[doc(alias = "is_valid")]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// How long the lease still stands without another renewal; zero once the lock is lost,
    /// [`Duration::MAX`] where the store has no leases.
    #[doc(alias = "ttl")]
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// What the store gives beside the lock, if it is a `T`. The backend's documentation tells what
    /// there is.
    #[must_use]
    pub fn attachment<T: Attachment>(&self) -> Option<Arc<T>> {
        let attachment = Arc::clone(self.held.attachment()?);
        let attachment: Arc<dyn Any + Send + Sync> = attachment;
        attachment.downcast().ok()
    }

    /// The signal that the lock is lost. It fires at the local deadline at the latest, also when
    /// the store is silent or gone, and never after a release.
    #[must_use]
    pub fn lost(&self) -> Lost {
        Lost::new(Arc::clone(&self.held))
    }

    /// The warning that the hold will end in `before` or less, unless it is renewed meanwhile: by
    /// the end of its lease, by [`max_hold`](crate::LockOptions::max_hold), or by a shutdown.
    ///
    /// A renewed lease is never longer than the ttl, and with
    /// [`Renewal::Auto`](crate::Renewal::Auto) it shrinks to two thirds of that before it is
    /// renewed: a longer `before` warns of every renewal, and one of the ttl or more completes at
    /// once. A hold that has no end in sight, as on a store without leases, gives no warning before
    /// it is lost.
    #[must_use]
    pub fn expiring(&self, before: Duration) -> Expiring {
        Expiring::new(self.agenda(), Arc::clone(&self.held), before)
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
            _ = lost.wait() => Err(self.explain(self.held.lost_error(), "run")),
            output = work => {
                if self.is_held() { Ok(output) } else { Err(self.explain(self.held.lost_error(), "run")) }
            }
        }
    }

    /// Renews the lease now.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock is lost. Any other error means that the outcome is unknown:
    /// the lock is held until its local deadline, or longer.
    ///
    /// # Cancel safety
    /// Cancel safe: a renewal in flight is finished in the background. Poll it until it ends, or
    /// drop it: kept and not polled, it keeps all other renewals waiting, and the lock is lost.
    pub async fn renew(&self) -> Result<()> {
        self.keeper.ensure().map_err(|error| self.explain(error, "renew"))?;
        self.finishing(renew_now(self.agenda(), Arc::clone(&self.held), None)).await
    }

    /// Renews the lease now, once, for `lease` instead of the ttl, and tells how long the hold
    /// lasts without another renewal.
    ///
    /// It never shortens a lease, so the answer may be more than `lease`. It is less by the margin
    /// for drift (C3), or where [`max_hold`](crate::LockOptions::max_hold) or a shutdown that has
    /// begun ends the hold earlier. A holder that dies keeps the lock for as long.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidOption`] if `lease` is not between 10 ms and 24 h,
    /// [`ErrorKind::Unsupported`] if the backend has no leases of another length,
    /// [`ErrorKind::Lost`] if the lock is lost. Any other error means that the outcome is unknown:
    /// the lock is held until its local deadline, or longer.
    ///
    /// # Cancel safety
    /// Cancel safe: a renewal in flight is finished in the background.
    pub async fn extend(&self, lease: Duration) -> Result<Duration> {
        let refuse = |kind, text| Err(self.explain(Error::new(kind, text), "extend"));
        if !self.held.locker().extends {
            let text =
                "this backend has no leases of another length than the ttl; use `renew`".to_owned();
            return refuse(ErrorKind::Unsupported, text);
        }
        if !(MIN_TTL..=MAX_TTL).contains(&lease) {
            let text = format!(
                "a lease of {lease:?} is asked for, it must be between {MIN_TTL:?} and 24 h"
            );
            return refuse(ErrorKind::InvalidOption, text);
        }
        self.keeper.ensure().map_err(|error| self.explain(error, "extend"))?;
        self.finishing(renew_now(self.agenda(), Arc::clone(&self.held), Some(lease))).await?;
        let left = self.remaining();
        if left.is_zero() {
            return Err(self.lost_error("extend"));
        }
        Ok(left.min(self.held.locker().clock.now().until(self.held.end_in_sight())))
    }

    /// Writes the [`Note`] beside the lock, which stays when the lock is free: what was done under
    /// it, say. It is written only if the lock is still held in that instant, by the store's own
    /// knowledge.
    ///
    /// Read it with [`Locker::note`](crate::Locker::note), and write the [next](Note::next) one.
    /// [`Noted::Outdated`] means that another task wrote with this guard meanwhile, or that what
    /// was read was older. The answer is never [`Noted::NotHeld`], which is an error here.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the backend has no notes, or for another lock than a mutex or
    /// an election, [`ErrorKind::InvalidOption`] if the note is longer than 16 KiB,
    /// [`ErrorKind::NoRuntime`], [`ErrorKind::Lost`] if the lock is lost. Any error, a loss as
    /// well, may mean that the [outcome is unknown](Error::is_outcome_unknown): the store was
    /// asked, again and again, until the end of the lease or twice the operation timeout, whichever
    /// came first. Writing the same note again is harmless.
    ///
    /// # Cancel safety
    /// Cancel safe: it is finished in the background. Poll it until it ends, or drop it: kept and
    /// not polled, it keeps the renewals waiting, and the lock is lost.
    pub async fn write_note(&self, note: &Note) -> Result<Noted> {
        let explain = |error| self.explain(error, "write note");
        if !self.held.locker().notes {
            return Err(explain(Error::new(ErrorKind::Unsupported, "this backend has no notes")));
        }
        check_noted(self.name().kind()).and_then(|()| note.check()).map_err(explain)?;
        self.keeper.ensure().map_err(|error| self.explain(error, "write note"))?;
        self.finishing(write_note(self.agenda(), Arc::clone(&self.held), note.clone())).await
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
        let lost = self.lost();
        self.released = true;
        let keeper = Arc::clone(&self.keeper);
        self.keeper.agenda().leak(&self.held, keeper);
        lost
    }

    /// Gives the lock back and says what was true.
    ///
    /// [`Released::NotHeld`] means that it was lost before: somebody else may have worked at the
    /// same time.
    ///
    /// # Errors
    /// The outcome is unknown. The store was asked, again and again, until the end of the lease or
    /// twice the operation timeout, whichever came first; the rest is done in the background, and
    /// the lease ends the lock at the latest. Where the store has no leases, its backend frees the
    /// lock when it can, or at its end.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped midway, the release is finished in the background.
    #[doc(alias = "unlock")]
    pub async fn release(mut self) -> Result<Released> {
        self.give_back().await
    }

    /// As [`release`](Self::release); nothing is left for the drop.
    pub(crate) async fn give_back(&mut self) -> Result<Released> {
        self.released = true;
        let held = &self.held;
        let agenda = self.keeper.agenda();
        let left = held.remaining();
        if left.is_zero() || !held.give_back() {
            agenda.retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
            return Ok(Released::NotHeld);
        }
        let lease = held.locker().clock.now().until(held.lease_end());
        let bound = lease.min(held.limits().op_timeout * 2);
        if let Some(attachment) = held.attachment() {
            // As when it is dropped: the release follows.
            let _ = catch_unwind(AssertUnwindSafe(|| attachment.guard_released()));
        }
        if Runtime::try_current().is_err() {
            return self.release_by_keeper().await;
        }
        agenda.retire(held, None);
        let releasing = self.finishing(release_held(self.agenda(), Arc::clone(held)));
        within(bound, releasing).await.unwrap_or_else(|| {
            let text =
                format!("the store did not answer within {bound:?}; {}", held.locker().last_resort);
            let error = Error::new(ErrorKind::Unavailable, text).with_outcome_unknown();
            Err(self.explain(error, "release"))
        })
    }

    fn agenda(&self) -> Arc<Agenda> {
        Arc::clone(self.keeper.agenda())
    }

    fn finishing<T: Send>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Finishing<'_, T> {
        Finishing::new(self.keeper.agenda(), call)
    }

    /// Another guard gives the hold back.
    pub(crate) fn disarm(&mut self) {
        self.released = true;
    }

    pub(crate) fn held(&self) -> &Arc<Hold> {
        &self.held
    }

    /// Outside a runtime there are no timers to bound a request with: the background task does it.
    async fn release_by_keeper(&self) -> Result<Released> {
        let (reply, outcome) = oneshot::channel();
        let cleanup = Cleanup::Release(Arc::clone(&self.held), Some(reply));
        self.keeper.agenda().retire(&self.held, Some(cleanup));
        outcome.await.unwrap_or_else(|_| Err(self.no_runtime("release").with_outcome_unknown()))
    }

    /// The error for a caller who learns from the release that the lock had been lost.
    pub(crate) fn lost_error(&self, operation: &'static str) -> Error {
        self.explain(self.held.lost_error(), operation)
    }

    fn no_runtime(&self, operation: &'static str) -> Error {
        let last_resort = self.held.locker().last_resort;
        let text =
            format!("there is no tokio runtime here, and the locker's own has gone; {last_resort}");
        self.explain(Error::new(ErrorKind::NoRuntime, text), operation)
    }

    fn explain(&self, error: Error, operation: &'static str) -> Error {
        self.held.explain(error, operation)
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("name", self.name())
            .field("mode", &self.mode())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.released {
            // Asking first notices a deadline that has passed: that is a loss, which nobody may
            // have noticed yet.
            if self.held.is_held() {
                self.held.give_back();
            }
            if let Some(attachment) = self.held.attachment() {
                // A panic hurts no lock: the panic hook has told it, and the release follows.
                let _ = catch_unwind(AssertUnwindSafe(|| attachment.guard_dropped()));
            }
            let cleanup = Cleanup::Release(Arc::clone(&self.held), None);
            self.keeper.agenda().retire(&self.held, Some(cleanup));
        }
    }
}
