//! Defines the trait of a store behind a [`Locker`](crate::Locker).

use std::{fmt, future};

use async_trait::async_trait;

use super::{Admin, Claim, ClaimSpec, Descriptor, Inspection, Released};
use crate::{error::Result, name::LockName, token::FencingToken};

/// One store: it makes claims, inspects locks and closes its connections.
///
/// All clones of a [`Locker`](crate::Locker) share one backend. A backend keeps every promise that
/// its [`Capabilities`](super::Capabilities) claim; the conformance suite checks the promises by
/// their numbers.
///
/// The core drops a call if its caller gave up, or if it takes too long. The store may have applied
/// such a call; nothing else of it may remain.
#[async_trait]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Describes this backend and its capabilities.
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

    /// Reports the holders of a lock and the number of waiters.
    ///
    /// # Behavior
    /// * Changes nothing.
    /// * Lists only holders whose lease has not ended by the store's time.
    /// * Reports a holder that is no lockkit client without an owner id and a token.
    ///
    /// # Errors
    /// Any error of the store.
    async fn inspect(&self, name: &LockName) -> Result<Inspection>;

    /// Frees the grant with this token, whoever owns it.
    ///
    /// # Behavior
    /// * Answers [`Released::NotHeld`] and changes nothing when the present grant has another
    ///   token, or belongs to a client that is not lockkit.
    /// * Wakes the next waiter. Where the store can, it also wakes the holder that lost its lock.
    ///
    /// # Errors
    /// Any error of the store.
    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released>;

    /// Returns the part that answers operators, if the backend has one. By default it has none.
    fn admin(&self) -> Option<&dyn Admin> {
        None
    }

    /// Completes when the holders of a name may have changed since the call. Observers of elections
    /// use it. By default it never completes, because the core also looks again from time to time.
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
    /// * The core calls it after all claims are released, or when it can't wait any longer for the
    ///   claims that are left.
    /// * The core calls it again if the call before it failed or was dropped. A second
    ///   [`Locker`](crate::Locker) that shares the backend calls it, too. Closing a closed backend
    ///   is no error.
    ///
    /// # Errors
    /// The connections or tasks that did not close in order.
    async fn close(&self) -> Result<()>;
}
