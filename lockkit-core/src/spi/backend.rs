//! The store behind a [`Locker`](crate::Locker).

use std::{fmt, future};

use async_trait::async_trait;

use super::{Admin, Claim, ClaimSpec, Descriptor, Inspection, Released};
use crate::{error::Result, name::LockName, token::FencingToken};

/// One store: it makes claims, inspects locks and closes its connections.
///
/// A backend is shared by all clones of a [`Locker`](crate::Locker). It keeps every promise that
/// its [`Capabilities`](super::Capabilities) claim; the conformance suite checks them by their
/// numbers. The core drops a call that its caller gave up, or that takes too long: it may then have
/// been done, and leaves nothing else behind.
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
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) for a mode outside the
    /// capabilities, or [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a ttl
    /// that the store can't give.
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
    /// * Answers [`Released::NotHeld`] and changes nothing when the present grant has another
    ///   token, or belongs to a client that is not lockkit.
    /// * Wakes the next waiter, and where the store can, the holder that lost its lock.
    ///
    /// # Errors
    /// Whatever the store says.
    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released>;

    /// Answers operators' questions, where the store can; by default it can't.
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }

    /// Completes when the holders of a name may have changed since it was called; for observers of
    /// elections. By default never: the core looks again now and then anyhow.
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
    /// * Is called after all claims are released, or when those that are left can't be waited for
    ///   any longer.
    /// * Is called again if the call before it failed, was dropped, or came from another
    ///   [`Locker`](crate::Locker) that shares the backend. To close what is closed is no error.
    ///
    /// # Errors
    /// What could not be closed in order.
    async fn close(&self) -> Result<()>;
}
