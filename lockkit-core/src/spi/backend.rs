//! The store behind a [`Locker`](crate::Locker).

use std::{fmt, future, time::SystemTime};

use async_trait::async_trait;

use super::{Claim, ClaimSpec, Descriptor, Finding, Inspection, Note, Released, Role};
use crate::{
    error::{Error, Result},
    name::{Kind, LockName},
    token::FencingToken,
};

/// One store: it makes claims, inspects locks and closes its connections.
///
/// A backend is shared by all clones of a [`Locker`](crate::Locker). It keeps every promise that its
/// [`Capabilities`](super::Capabilities) claim; the conformance suite checks them by their numbers. The core drops a call
/// that its caller gave up, or that takes too long: it may then have been done, and leaves nothing else behind.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Says what this backend is and can do.
    ///
    /// # Behavior
    /// * Returns the same value each time.
    fn descriptor(&self) -> &Descriptor;

    /// Makes a claim: one owner that will compete for one name.
    ///
    /// # Behavior
    /// * Does no I/O, and leaves nothing in the store.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a mode outside the capabilities, or
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a ttl that the store can't give.
    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>>;

    /// Tells who holds a lock and how many wait for it.
    ///
    /// # Behavior
    /// * Changes nothing.
    /// * Lists only holders whose lease has not ended by the store's time.
    /// * Reports a holder that is no lockkit client, without an owner id and a token.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn inspect(&self, name: &LockName) -> Result<Inspection>;

    /// Frees the grant with this token, whoever owns it.
    ///
    /// # Behavior
    /// * Answers [`Released::NotHeld`] and changes nothing when the present grant has another token, or belongs to
    ///   a client that is not lockkit.
    /// * Wakes the next waiter, and where the store can, the holder that lost its lock.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released>;

    /// Asks the store for a sign of life, with one cheap request that changes nothing, and tells the part that its
    /// server plays.
    ///
    /// # Behavior
    /// * Depends on no lock: it works while nothing is held, and says nothing of what is.
    ///
    /// # Errors
    /// Whatever the store says: it can't be used now.
    async fn probe(&self) -> Result<Role> {
        self.inspect(&LockName::new(Kind::Mutex, "lockkit health")?).await?;
        Ok(Role::Unknown)
    }

    /// The names of one kind that begin with `prefix` and that somebody holds or waits for. Only where the capability
    /// `names` is on.
    ///
    /// # Behavior
    /// * Changes nothing, and blocks nobody for long: a store with many names is asked page by page.
    /// * A name that is taken or freed meanwhile may be in it or not; each name is in it once, in no order.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        let _ = (kind, prefix);
        Err(Error::unsupported("lists of names"))
    }

    /// The note beside a mutex or an election; an empty one of revision zero if nobody wrote one. Asked only for these
    /// kinds, where the capability `notes` is on.
    ///
    /// # Behavior
    /// * Changes nothing.
    /// * Tells what was written before it was asked, also when a server that lags behind is asked.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn note(&self, name: &LockName) -> Result<Note> {
        let _ = name;
        Err(Error::unsupported("notes"))
    }

    /// The wall clock of the store: the same for all who ask, unless the store moves to another server. Only where the
    /// capability `time` is on.
    ///
    /// # Behavior
    /// * Is read while the request is on its way; it may be set back and forth, as any wall clock.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn time(&self) -> Result<SystemTime> {
        Err(Error::unsupported("clock that can be asked"))
    }

    /// Looks at the settings and the state of the store that locks depend on: what it keeps over a crash, what a
    /// failover can lose, whether clocks agree. By default there is nothing to tell.
    ///
    /// # Behavior
    /// * Changes nothing, and asks for what a user without privileges may ask as well; what it may not see is an
    ///   [`Unknown`](super::Grade::Unknown) finding, and no error.
    ///
    /// # Errors
    /// The store can't be asked at all.
    async fn diagnose(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }

    /// Completes when the holders of a name may have changed since it was called; for observers of elections. By
    /// default never: the core looks again now and then anyhow.
    ///
    /// # Behavior
    /// * May complete for no reason, and may miss a change.
    ///
    /// # Cancel safety
    /// Must be cancel safe, and must leave nothing in the store when it is dropped.
    async fn changed(&self, name: &LockName) {
        let _ = name;
        future::pending().await
    }

    /// Closes connections and ends the backend's own tasks.
    ///
    /// # Behavior
    /// * Is called after all claims are released, or when those that are left can't be waited for any longer.
    /// * Is called again if the call before it failed, was dropped, or came from another [`Locker`](crate::Locker) that
    ///   shares the backend. To close what is closed is no error.
    ///
    /// # Errors
    /// What could not be closed in order.
    async fn close(&self) -> Result<()>;
}
