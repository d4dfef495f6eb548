//! Gives tasks a view of a held lock, with its state and its operations, but without its guard.

use std::{any::Any, fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    ask::UNSUPPORTED,
    driver::{
        agenda::Agenda,
        finishing::{Finishing, shared},
        held::Held,
        keeper,
        note::write_note,
        renew::renew_now,
    },
    error::{Error, ErrorKind, Result},
    expiring::Expiring,
    lost::Lost,
    name::LockName,
    options::{MAX_TTL, MIN_TTL},
    requested::release_requested,
    spi::{Attachment, Mode, Note, Noted, check_noted},
    token::{FencingToken, OwnerId},
};

/// A view of a held lock, for the tasks that work under it. It is cheap to clone and `'static`.
///
/// A view does not keep the lock. The [guard](crate::LockGuard) keeps it, and only the guard can
/// release it. When the guard is released or dropped, all its views say that the lock is not held.
///
/// ```
/// use lockkit_core::{ErrorKind, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockkit_core::Result<()> {
/// let locker = Locker::memory();
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// let hold = guard.hold();
/// let work = tokio::spawn(async move { hold.is_held().then(|| hold.fencing_token()) });
/// assert_eq!(work.await.unwrap(), Some(guard.fencing_token()));
/// let hold = guard.hold();
/// guard.release().await?;
/// assert!(!hold.is_held());
/// assert_eq!(hold.renew().await.unwrap_err().kind(), ErrorKind::Lost);
/// # locker.shutdown().await
/// # }
/// ```
#[derive(Clone)]
pub struct Hold {
    held: Arc<Held>,
    /// A view has no keeper, because the keeper keeps the background task running.
    agenda: Arc<Agenda>,
}

impl Hold {
    pub(crate) fn new(held: Arc<Held>, agenda: Arc<Agenda>) -> Self {
        Self { held, agenda }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held.name
    }

    /// The mode in which the lock is held.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.held.mode
    }

    /// The identity of this grant's claim, as inspection shows it.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.held.owner()
    }

    /// The fencing token for the protected resource. The resource refuses a token that is smaller
    /// than one it has seen.
    #[must_use]
    pub fn fencing_token(&self) -> FencingToken {
        self.held.token()
    }

    /// Whether the lease is still valid, by the local clock and without I/O.
    ///
    /// Once false it stays false. It turns false when the guard gives the lock back, and before the
    /// store can grant the lock to another owner.
    #[doc(alias = "is_valid")]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// How long the lease is still valid without another renewal. It is zero once the lock is lost
    /// or given back, and [`Duration::MAX`] where the store has no leases.
    #[doc(alias = "ttl")]
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// Returns what the store gives beside the lock, if it is a `T`. The backend's documentation
    /// says what it gives.
    #[must_use]
    pub fn attachment<T: Attachment>(&self) -> Option<Arc<T>> {
        let attachment = Arc::clone(self.held.attachment()?);
        let attachment: Arc<dyn Any + Send + Sync> = attachment;
        attachment.downcast().ok()
    }

    /// The signal that the lock is lost. It fires at the local deadline at the latest, even if the
    /// store is silent or gone. It never fires after a release.
    #[must_use]
    pub fn lost(&self) -> Lost {
        Lost::new(Arc::clone(&self.held))
    }

    /// The warning that the hold will end in `before` or less, unless it is renewed meanwhile. A
    /// hold ends with its lease, by [`max_hold`](crate::LockOptions::max_hold), or by a shutdown.
    ///
    /// A renewed lease is never longer than the ttl. With [`Renewal::Auto`](crate::Renewal::Auto)
    /// the lease shrinks to two thirds of the ttl before it is renewed. So a longer `before` warns
    /// of every renewal, and a `before` of the ttl or more completes at once. In place of the ttl,
    /// some stores have a [longest lease](crate::spi::Descriptor::longest_lease).
    ///
    /// If no end of the hold is known, as on a store without leases, there is no warning before the
    /// lock is lost.
    #[must_use]
    pub fn expiring(&self, before: Duration) -> Expiring {
        Expiring::new(Arc::clone(&self.agenda), Arc::clone(&self.held), before)
    }

    /// Completes when an operator or a waiter [asks](crate::Locker::request_release) the holder to
    /// release this hold, and returns the reason. It never completes once the lock was given back.
    ///
    /// The holder decides by itself: it can finish its work, [release](crate::LockGuard::release)
    /// the lock, or keep it.
    ///
    /// While a call is awaited, the background task looks for requests once a second, however many
    /// calls there are. Where the store reports changes, it also looks when a request begins. If
    /// the store can't answer, it asks again. While a request lasts, each look that finds it
    /// completes the calls that are awaited then.
    ///
    /// # Errors
    /// * [`ErrorKind::Unsupported`] if the backend has no exclusive locks or shows no labels.
    /// * [`ErrorKind::NoRuntime`].
    /// * [`ErrorKind::Lost`] if the lock is lost.
    ///
    /// # Cancel safety
    /// Cancel safe. A call that each turn of a `select!` loop makes anew misses no request.
    pub async fn release_requested(&self) -> Result<String> {
        let explain = |error| self.explain(error, "listen for requests");
        if !self.held.locker().requests {
            return Err(explain(Error::unsupported(UNSUPPORTED)));
        }
        release_requested(&self.agenda, &self.held).await.map_err(explain)
    }

    /// Renews the lease now.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock is lost. Any other error means that the outcome is unknown:
    /// the lock is held until its local deadline, or longer.
    ///
    /// # Cancel safety
    /// Cancel safe: the background task finishes a renewal that was already sent.
    pub async fn renew(&self) -> Result<()> {
        self.renew_for(None, "renew").await
    }

    /// Renews the lease now, once, for `lease` instead of the ttl. Returns how long the hold lasts
    /// without another renewal.
    ///
    /// The store never shortens a lease, so the answer may be more than `lease`. The hold may end
    /// earlier than before only by as long as the request takes, because a lease counts from when
    /// it was asked for. The answer is less than `lease` by the margin for drift (C3). It is also less if
    /// [`max_hold`](crate::LockOptions::max_hold) or a shutdown that has begun ends the hold
    /// earlier. If the holder dies, the lock stays taken for as long.
    ///
    /// # Errors
    /// * [`ErrorKind::InvalidOption`] if `lease` is not between 10 ms and 24 h.
    /// * [`ErrorKind::Unsupported`] if the backend has no leases of another length.
    /// * [`ErrorKind::Lost`] if the lock is lost.
    ///
    /// Any other error means that the outcome is unknown: the lock is held until its local
    /// deadline, or longer.
    ///
    /// # Cancel safety
    /// Cancel safe: the background task finishes a renewal that was already sent.
    pub async fn extend(&self, lease: Duration) -> Result<Duration> {
        let refuse = |kind, text| Err(self.explain(Error::new(kind, text), "extend"));
        if !self.held.locker().extends {
            let text = "this backend has only leases as long as the ttl; use `renew`".to_owned();
            return refuse(ErrorKind::Unsupported, text);
        }
        if !(MIN_TTL..=MAX_TTL).contains(&lease) {
            let text =
                format!("the lease is {lease:?}, but it must be between {MIN_TTL:?} and 24 h");
            return refuse(ErrorKind::InvalidOption, text);
        }
        self.renew_for(Some(lease), "extend").await?;
        let left = self.remaining();
        if left.is_zero() {
            return Err(self.lost_error("extend"));
        }
        Ok(left.min(self.held.locker().clock.now().until(self.held.end_in_sight())))
    }

    async fn renew_for(&self, lease: Option<Duration>, operation: &'static str) -> Result<()> {
        keeper::ensure(&self.agenda).map_err(|error| self.explain(error, operation))?;
        let renewal = renew_now(Arc::clone(&self.agenda), Arc::clone(&self.held), lease);
        shared(&self.agenda, renewal).await
    }

    /// Writes the [`Note`] beside the lock, for example to say what was done under the lock. The
    /// note stays when the lock is free. The store writes it only if it finds the lock still held
    /// in that instant.
    ///
    /// Read the note with [`Locker::note`](crate::Locker::note), and write the [next](Note::next)
    /// one. [`Noted::Outdated`] means that another task wrote under this hold meanwhile, or that
    /// the note that was read was older. The answer is never [`Noted::NotHeld`], which is an error
    /// here.
    /// # Errors
    /// * [`ErrorKind::Unsupported`] if the backend has no notes, or if the lock is neither a mutex
    ///   nor an election.
    /// * [`ErrorKind::InvalidOption`] if the note is longer than 16 KiB.
    /// * [`ErrorKind::NoRuntime`].
    /// * [`ErrorKind::Lost`] if the lock is lost.
    ///
    /// Any error, even a loss, may mean that the [outcome is unknown](Error::is_outcome_unknown).
    /// lockkit asks the store again and again, until the end of the lease or for twice the
    /// operation timeout, whichever comes first. Writing the same note again is harmless.
    ///
    /// # Cancel safety
    /// Cancel safe: the background task finishes the write.
    pub async fn write_note(&self, note: &Note) -> Result<Noted> {
        self.write_note_within(note, self.held.limits().op_timeout * 2).await
    }

    /// As [`write_note`](Self::write_note), with `bound` instead of twice the operation timeout.
    pub(crate) async fn write_note_within(&self, note: &Note, bound: Duration) -> Result<Noted> {
        let explain = |error| self.explain(error, "write note");
        if !self.held.locker().notes {
            return Err(explain(Error::new(
                ErrorKind::Unsupported,
                "this backend does not support notes",
            )));
        }
        check_noted(self.name().kind()).and_then(|()| note.check()).map_err(explain)?;
        keeper::ensure(&self.agenda).map_err(explain)?;
        let agenda = Arc::clone(&self.agenda);
        let writing = write_note(agenda, Arc::clone(&self.held), note.clone(), bound);
        shared(&self.agenda, writing).await
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(crate) fn agenda(&self) -> &Arc<Agenda> {
        &self.agenda
    }

    pub(crate) fn finishing<T: Send>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Finishing<'_, T> {
        Finishing::new(&self.agenda, call)
    }

    pub(crate) fn lost_error(&self, operation: &'static str) -> Error {
        self.explain(self.held.lost_error(), operation)
    }

    pub(crate) fn explain(&self, error: Error, operation: &'static str) -> Error {
        self.held.explain(error, operation)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", self.name())
            .field("mode", &self.mode())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
