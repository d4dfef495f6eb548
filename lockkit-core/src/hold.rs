//! What can be asked of a held lock, and done for it, without its guard.

use std::{any::Any, fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    driver::{
        agenda::Agenda,
        finishing::{Finishing, shared},
        hold::Hold as Held,
        keeper,
        note::write_note,
        renew::renew_now,
    },
    error::{Error, ErrorKind, Result},
    expiring::Expiring,
    lost::Lost,
    name::LockName,
    options::{MAX_TTL, MIN_TTL},
    spi::{Attachment, Mode, Note, Noted, check_noted},
    token::{FencingToken, OwnerId},
};

/// A view of a held lock, to hand to the tasks that work under it. Cheap to clone and `'static`.
///
/// It does not keep the lock: that is the [guard's](crate::LockGuard) part, which alone can release
/// it. When the guard is released or dropped, all its views say that the lock is not held.
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
    /// Not the keeper, which has its task at work: a view must not keep that.
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
    /// else, and when the guard gives the lock back.
    #[doc(alias = "is_valid")]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// How long the lease still stands without another renewal; zero once the lock is lost
    /// or given back, [`Duration::MAX`] where the store has no leases.
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
        Expiring::new(Arc::clone(&self.agenda), Arc::clone(&self.held), before)
    }

    /// Renews the lease now.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock is lost. Any other error means that the outcome is unknown:
    /// the lock is held until its local deadline, or longer.
    ///
    /// # Cancel safety
    /// Cancel safe: a renewal in flight is finished in the background.
    pub async fn renew(&self) -> Result<()> {
        self.renew_for(None, "renew").await
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

    /// Writes the [`Note`] beside the lock, which stays when the lock is free: what was done under
    /// it, say. It is written only if the lock is still held in that instant, by the store's own
    /// knowledge.
    ///
    /// Read it with [`Locker::note`](crate::Locker::note), and write the [next](Note::next) one.
    /// [`Noted::Outdated`] means that another task wrote under this hold meanwhile, or that what
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
    /// Cancel safe: it is finished in the background.
    pub async fn write_note(&self, note: &Note) -> Result<Noted> {
        let explain = |error| self.explain(error, "write note");
        if !self.held.locker().notes {
            return Err(explain(Error::new(ErrorKind::Unsupported, "this backend has no notes")));
        }
        check_noted(self.name().kind()).and_then(|()| note.check()).map_err(explain)?;
        keeper::ensure(&self.agenda).map_err(explain)?;
        let writing = write_note(Arc::clone(&self.agenda), Arc::clone(&self.held), note.clone());
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
