//! One owner competing for one name.

use std::{fmt, future, num::NonZeroU32, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Attachment, Caller, Lease, Note, Noted, Wake};
use crate::{
    clock::Clock,
    error::{Error, Result},
    name::LockName,
    token::{FencingToken, OwnerId},
};

/// One owner competing for one name, and later holding it.
///
/// The core never drops a call because a *caller* was cancelled: an abandoned call is finished in
/// the background. It may drop a call at `op_timeout`. That equals an unknown outcome, and the
/// claim must stay usable: the core calls `attempt`, `renew` or `release` on it again.
#[async_trait]
pub trait Claim: fmt::Debug + Send + 'static {
    /// Tries once to get the lock.
    ///
    /// # Behavior
    /// * Is idempotent for this claim: when an earlier attempt was applied and its reply lost, it
    ///   answers the same grant with the same token, and a lease that the store confirms now (what
    ///   remains, or extended in the same request, never shortened).
    /// * With [`Wait::No`] it leaves nothing in the store unless it is granted.
    /// * With [`Wait::Queue`] it may leave a place in the queue; then `Busy { queued: true, .. }`
    ///   says so.
    /// * With [`Wait::Block`] it may wait in the store, for at most that long, and ends the wait
    ///   when the [caller](ClaimSpec::caller) has gone: within 1 s nothing of it waits in the
    ///   store. A grant after a wait has a lease that is [proven](Lease::Proven) after it: one
    ///   counted from before the wait may have ended.
    /// * Where the store can check it, a request that arrives after `op_timeout` does nothing.
    /// * It may follow a release of the same claim, which was answered. A release that arrives
    ///   twice must not end the grant of this attempt.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied.
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt>;

    /// Renews or validates the lease of a grant: for the claim's ttl, or for `lease`, which is
    /// asked for only where the capability `extend` is on: others may ignore it.
    ///
    /// # Behavior
    /// * Never shortens a lease that was confirmed, and never re-creates what is gone.
    /// * Changes nothing for another owner.
    ///
    /// # Errors
    /// Every error means *unknown*: the lease is neither extended nor ended by it.
    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome>;

    /// What a renewal would answer, if the backend knows that without a request, because it keeps
    /// up the leases of all its claims together. The core asks for this when a renewal falls due,
    /// and calls [`renew`](Self::renew) if there is none, and whenever the user renews.
    ///
    /// # Behavior
    /// * A grant that is gone from the store is known to be gone within a bounded time, which the
    ///   backend documents. The backend wakes the claim with its [`Wake`] then.
    fn known_outcome(&mut self) -> Option<Result<RenewalOutcome>> {
        None
    }

    /// Gives the lock back, or leaves the queue.
    ///
    /// # Behavior
    /// * Is idempotent, and touches only what this owner wrote.
    /// * Undoes attempts whose outcome is unknown.
    /// * Passes a wake-up on that this claim got and can't use any more.
    /// * The core gives up after a while, and drops the claim. Where there is no lease, the backend
    ///   must take out by itself then what is left of it.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied.
    async fn release(&mut self) -> Result<Released>;

    /// Completes when another attempt may succeed. Called only while waiting; for clients whose
    /// watches are futures. Others use the claim's [`Wake`].
    ///
    /// # Behavior
    /// * May complete for no reason, and may miss a change: the core polls as well.
    ///
    /// # Cancel safety
    /// Must be cancel safe: it is dropped whenever something else wakes the waiter.
    async fn changed(&mut self) {
        future::pending().await
    }

    /// What the holder gets from the store beside the lock. Asked once, right after the grant.
    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        None
    }

    /// Raises the token of a held grant to `floor`, unless it is that large already, and answers
    /// the token that the grant has from now on: `None` if it is not held any more. Only where the
    /// capability `raise_token` is on.
    ///
    /// # Behavior
    /// * Every later grant of the name gets a larger token than the answered one (C4), and
    ///   inspection shows that one.
    /// * Is idempotent, and changes nothing for another owner.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied.
    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let _ = floor;
        Err(Error::unsupported("tokens that can be raised"))
    }

    /// Writes the note beside the lock. Called only for exclusive grants of mutexes and elections,
    /// where the capability `notes` is on.
    ///
    /// # Behavior
    /// * The store looks, in the same step, whether the grant stands, and whether the note
    ///   [replaces](Note::replaces) the one that it has.
    /// * Is idempotent, and changes neither the lease nor the token.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied.
    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let _ = note;
        Err(Error::unsupported("notes"))
    }

    /// Transfers a held grant to another owner in this process, in one request: new owner, new
    /// token, whole lease. Only where the capability `transfer` is on.
    ///
    /// # Behavior
    /// * At no instant is the lock free, or held by both.
    /// * After [`Granted`](Transferred::Granted) this claim is that of `to`, in all that a claim
    ///   takes from its spec.
    /// * With [`QueuePolicy::QueueFirst`] it frees the lock, as [`release`](Self::release) does, if
    ///   anybody else waits for it in the store, or if the store can't tell.
    /// * Where the store can check it, a request that arrives after `op_timeout` does nothing.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied. The core then calls nothing but `release`, which gives the lock back whichever of
    /// the two owners has it, and answers [`Released::Freed`] if one had it.
    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let _ = (to, policy);
        Err(Error::unsupported("a transfer inside the process"))
    }
}

/// Whether a transfer inside the process comes before the waiters in the store's queue.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePolicy {
    /// The waiters in the store are served first, if there are any.
    QueueFirst,
    /// The waiters in the store wait on.
    TransferFirst,
}

/// The answer to a [transfer](Claim::transfer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transferred {
    /// The new owner has the lock; the previous owner had it until then.
    Granted(Grant),
    /// The previous owner did not hold the lock any more. Nothing was granted.
    NotHeld,
    /// The lock was freed, or went to one who waited in the store.
    Yielded,
}

/// What a claim is about.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct ClaimSpec {
    /// The lock.
    pub name: LockName,
    /// The identity of this claim.
    pub owner: OwnerId,
    /// How the lock is to be held.
    pub mode: Mode,
    /// The lease to ask for.
    pub ttl: Duration,
    /// After how long the core gives up on one request.
    pub op_timeout: Duration,
    /// A text for humans who inspect the lock.
    pub label: Option<Arc<str>>,
    /// The clock of the Locker's deadlines: [`Clock::Boot`], unless a test asks for another one. A
    /// server counts leases by itself, and need not look at it. A store inside the process counts
    /// them on one clock, and refuses a claim on another as
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption): else a holder may believe in a lease that
    /// has ended (C3).
    pub clock: Clock,
    /// The backend wakes the claim with this when something may have changed.
    pub wake: Wake,
    /// Whoever waits for the attempts.
    pub caller: Caller,
    /// A grant after a wait may have a shorter lease than `ttl`: it is renewed long before that
    /// ends.
    pub short_lease: bool,
}

impl ClaimSpec {
    /// A claim without a label, on the boot clock, with a [`Wake`] that wakes nothing and a caller
    /// that never goes, which wants its whole lease.
    #[must_use]
    pub fn new(
        name: LockName,
        owner: OwnerId,
        mode: Mode,
        ttl: Duration,
        op_timeout: Duration,
    ) -> Self {
        let label = None;
        let clock = Clock::Boot;
        let wake = Wake::none();
        let caller = Caller::patient();
        Self { name, owner, mode, ttl, op_timeout, label, clock, wake, caller, short_lease: false }
    }
}

/// How a lock is held. A backend refuses a mode that it doesn't know, as
/// [`Unsupported`](crate::ErrorKind::Unsupported).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Some of a limited number of permits. All claims of one name must agree on the limit.
    Permits {
        /// How many this claim wants; at most `limit`.
        count: NonZeroU32,
        /// How many there are.
        limit: NonZeroU32,
    },
    /// Together with other shared holders.
    Shared,
}

/// What an attempt may do when the lock is taken. A backend treats what it doesn't know as
/// [`No`](Self::No).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait inside the store for at most this long. Only for stores whose
    /// [`max_patience`](super::Descriptor::max_patience) is not zero.
    Block(Duration),
    /// Come back at once and leave nothing behind.
    No,
    /// Come back at once; a place in the queue may stay.
    Queue,
}

/// The answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Somebody else has the lock.
    Busy {
        /// Something of this claim stays in the store until it is released.
        queued: bool,
        /// When the present lease ends, if the store knows: a good time to ask again.
        retry_after: Option<Duration>,
    },
    /// The lock is ours.
    Granted(Grant),
}

/// A claim that won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token of this grant.
    pub token: FencingToken,
    /// How long it is good for.
    pub lease: Lease,
    /// The owner that the store knows the grant by, if that is not the one of the [`ClaimSpec`].
    pub owner: Option<OwnerId>,
}

impl Grant {
    /// A grant to the owner of the [`ClaimSpec`].
    #[must_use]
    pub const fn new(token: FencingToken, lease: Lease) -> Self {
        Self { token, lease, owner: None }
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenewalOutcome {
    /// The grant stands.
    Alive(Lease),
    /// The grant is gone.
    Lost(LossReason),
}

/// Why a lock was lost.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// The locker was shut down while the lock was held.
    Closed,
    /// The store says that it belongs to nobody or to someone else: freed by an operator, deleted,
    /// or evicted.
    Evicted,
    /// No renewal was confirmed before the local deadline.
    Expired,
    /// It was held for as long as [`max_hold`](crate::LockOptions::max_hold) allows.
    MaxHold,
    /// The store's session or connection that carried the lock has ended.
    SessionLost,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the locker was shut down",
            Self::Evicted => "the store says that it is not ours any more",
            Self::Expired => "no renewal was confirmed before the end of the lease",
            Self::MaxHold => "it was held for as long as its options allow",
            Self::SessionLost => "the store session that carried it has ended",
        })
    }
}

/// What the store found when it was asked to free a lock. A guard's release tells
/// [`NotHeld`](Self::NotHeld) as [`ErrorKind::Lost`](crate::ErrorKind::Lost).
#[must_use = "the lock may not have been ours any more"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The lock was ours and is free now.
    Freed,
    /// The lock was not ours any more: the lease had ended, or someone else has it.
    NotHeld,
}
