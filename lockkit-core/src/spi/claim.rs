//! Defines the trait of one owner that competes for one name.

use std::{fmt, future, num::NonZeroU32, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Attachment, Caller, Lease, Note, Noted, Wake};
use crate::{
    clock::Clock,
    error::{Error, Result},
    name::LockName,
    token::{FencingToken, OwnerId},
};

/// One owner that competes for one name, and later holds it.
///
/// The core never drops a call because a *caller* was cancelled: the background task finishes an
/// abandoned call. The core may drop a call at `op_timeout`. The outcome of that call is then
/// unknown, and the claim must stay usable: the core calls `attempt`, `renew` or `release` on it
/// again.
#[async_trait]
pub trait Claim: fmt::Debug + Send + 'static {
    /// Tries once to get the lock.
    ///
    /// # Behavior
    /// * Is idempotent for this claim. If an earlier attempt was applied and its reply was lost, it
    ///   answers the same grant with the same token. The lease is then one that the store confirms
    ///   now: what remains of it, or an extension in the same request. It is never shorter than
    ///   before.
    /// * With [`Wait::No`] it leaves nothing in the store unless it is granted.
    /// * With [`Wait::Queue`] it may leave a place in the queue; it then answers
    ///   `Busy { queued: true, .. }`.
    /// * With [`Wait::Block`] it may wait in the store, for at most that long. It ends the wait
    ///   when the [caller](ClaimSpec::caller) leaves: within 1 s nothing of it waits in the store.
    ///   A grant after a wait has a lease that is [proven](Lease::Proven) after the wait, because a
    ///   lease counted from before the wait may have ended.
    /// * Where the store can check it, a request that arrives after `op_timeout` does nothing.
    /// * It may follow an answered release of the same claim. If that release arrives a second
    ///   time, it must not end the grant of this attempt.
    /// * A claim that [resumes](ClaimSpec::resumes) a grant does not compete. If the former owner
    ///   still holds that grant in the claim's mode, the claim takes it over in one step. The token
    ///   stays, the lease is whole, and owner and label are the claim's. Otherwise it answers
    ///   `Busy`, and takes nothing, even if the lock is free.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied. Any other error means that this attempt has left nothing in the store (C5).
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt>;

    /// Renews or validates the lease of a grant, for the claim's ttl or for `lease`. The core
    /// passes a `lease` only where the capability `extend` is on, so other backends may ignore it.
    ///
    /// # Behavior
    /// * Never shortens a lease that was confirmed, and never re-creates a grant that has ended.
    /// * Changes nothing for another owner.
    ///
    /// # Errors
    /// Every error means *unknown*: it neither extends the lease nor ends it.
    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome>;

    /// Answers what a renewal would answer, if the backend knows that without a request because it
    /// keeps up the leases of all its claims together.
    ///
    /// The core asks this when a renewal falls due. It calls [`renew`](Self::renew) if there is no
    /// answer, and whenever the user renews.
    ///
    /// # Behavior
    /// * If a grant ends in the store, the backend learns that within a bounded time, which it
    ///   documents. It then wakes the claim with its [`Wake`].
    fn known_outcome(&mut self) -> Option<Result<RenewalOutcome>> {
        None
    }

    /// Gives the lock back, or leaves the queue.
    ///
    /// # Behavior
    /// * Is idempotent, and touches only what this owner wrote.
    /// * Undoes attempts whose outcome is unknown.
    /// * If this claim got a wake-up that it can't use any more, passes it on.
    /// * The core gives up after a while, and drops the claim. Where there is no lease, the backend
    ///   must then remove by itself whatever is left of the claim.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied.
    async fn release(&mut self) -> Result<Released>;

    /// Leaves the grant to a claim that will [resume](ClaimSpec::resumes) it. The core drops this
    /// claim then, and does not release it. So the drop must not end the grant. By default there is
    /// nothing to do. The core calls this only where the capability `tickets` is on.
    fn leave_grant(&mut self) {}

    /// Completes when another attempt may succeed. The core calls it only while the claim waits. It
    /// is for clients whose watches are futures; other backends use the claim's [`Wake`].
    ///
    /// # Behavior
    /// * May complete for no reason, and may miss a change: the core polls as well.
    ///
    /// # Cancel safety
    /// Must be cancel safe: the core drops it whenever something else wakes the waiter.
    async fn changed(&mut self) {
        future::pending().await
    }

    /// Returns what the store gives to the holder beside the lock. The core asks once, right after
    /// the grant.
    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        None
    }

    /// Raises the token of a held grant to `floor`, unless the token is already that large. The
    /// answer is the token that the grant has from now on, or `None` if the claim no longer holds
    /// it. The core calls this only where the capability `raise_token` is on.
    ///
    /// # Behavior
    /// * Every later grant of the name gets a larger token than the answered one (C4), and
    ///   inspection shows the answered one.
    /// * Is idempotent, and changes nothing for another owner.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied.
    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        let _ = floor;
        Err(Error::unsupported("raising tokens"))
    }

    /// Writes the note beside the lock. The core calls it only for exclusive grants of mutexes and
    /// elections, and only where the capability `notes` is on.
    ///
    /// # Behavior
    /// * In one step the store checks that the claim still holds its grant, and that the note
    ///   [replaces](Note::replaces) the stored one.
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
    /// token, whole lease. The core calls it only where the capability `transfer` is on.
    ///
    /// # Behavior
    /// * At no instant is the lock free, or held by both owners.
    /// * After [`Granted`](Transferred::Granted) this claim is the claim of `to`: it uses each
    ///   value from the spec of `to`.
    /// * With [`QueuePolicy::QueueFirst`] it frees the lock, as [`release`](Self::release) does, if
    ///   another claim waits in the store. It also frees the lock if the store can't say whether
    ///   one waits.
    ///
    /// # Errors
    /// An error that [is unknown](crate::Error::is_outcome_unknown) if the request may have been
    /// applied. The core then calls only `release`. That call gives the lock back whichever of the
    /// two owners has it, and answers [`Released::Freed`] if one of them had it.
    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let _ = (to, policy);
        Err(Error::unsupported("transfers inside the process"))
    }
}

/// Whether a transfer inside the process comes before the waiters in the store's queue.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePolicy {
    /// The waiters in the store come first, if there are any.
    QueueFirst,
    /// The waiters in the store continue to wait.
    TransferFirst,
}

/// The answer to a [transfer](Claim::transfer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transferred {
    /// The new owner has the lock; the previous owner had it until then.
    Granted(Grant),
    /// The previous owner did not hold the lock any more. Nothing was granted.
    NotHeld,
    /// The lock was freed, or went to a waiter in the store.
    Yielded,
}

/// The lock, the owner and the options of a claim.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct ClaimSpec {
    /// The lock.
    pub name: LockName,
    /// The identity of this claim.
    pub owner: OwnerId,
    /// The mode in which the claim asks for the lock.
    pub mode: Mode,
    /// The lease that the claim asks for.
    pub ttl: Duration,
    /// The time after which the core gives up on one request.
    pub op_timeout: Duration,
    /// A text for humans who inspect the lock.
    pub label: Option<Arc<str>>,
    /// The clock of the locker's deadlines: [`Clock::Boot`], unless a test asks for another one.
    ///
    /// A server counts leases on its own clock, and its backend need not use this field. A store
    /// inside the process counts leases on one clock. It refuses a claim on another clock with
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption): otherwise a holder may believe in a
    /// lease that has ended (C3).
    pub clock: Clock,
    /// The means by which the backend wakes the claim when something may have changed.
    pub wake: Wake,
    /// The caller that waits for the attempts.
    pub caller: Caller,
    /// A grant after a wait may have a shorter lease than `ttl`, because the core renews it long
    /// before the lease ends.
    pub short_lease: bool,
    /// The grant that the claim continues, in the place of a grant of its own. The core sets it
    /// only where the capability `tickets` is on. It is boxed, because few claims resume a grant.
    pub resumes: Option<Box<GrantId>>,
}

impl ClaimSpec {
    /// A claim with the boot clock and without a label. It has a [`Wake`] that wakes nothing and a
    /// caller that never leaves. It asks for its whole lease, and resumes no grant.
    #[must_use]
    pub fn new(
        name: LockName,
        owner: OwnerId,
        mode: Mode,
        ttl: Duration,
        op_timeout: Duration,
    ) -> Self {
        Self {
            name,
            owner,
            mode,
            ttl,
            op_timeout,
            label: None,
            clock: Clock::Boot,
            wake: Wake::none(),
            caller: Caller::patient(),
            short_lease: false,
            resumes: None,
        }
    }
}

/// Names one grant of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GrantId {
    /// The owner that the store knows.
    pub owner: OwnerId,
    /// The token of the grant, or a smaller one. A member of a quorum may have given the grant a
    /// larger token than the quorum did.
    pub token: FencingToken,
}

impl GrantId {
    /// Whether a grant of this owner with this token is meant.
    #[must_use]
    pub fn is(&self, owner: OwnerId, token: FencingToken) -> bool {
        self.owner == owner && self.token <= token
    }
}

/// The way in which a lock is held. A backend refuses a mode that it doesn't know with
/// [`Unsupported`](crate::ErrorKind::Unsupported).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Some of a limited number of permits. All claims of one name must agree on the limit.
    Permits {
        /// The number of permits that this claim wants; at most `limit`.
        count: NonZeroU32,
        /// The number of permits that the name has.
        limit: NonZeroU32,
    },
    /// Together with other shared holders.
    Shared,
}

/// How an attempt may wait when the lock is taken. A backend treats a value that it doesn't know as
/// [`No`](Self::No).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait inside the store for at most this long. Only stores whose
    /// [`max_patience`](super::Descriptor::max_patience) is not zero get this value.
    Block(Duration),
    /// Answer at once and leave nothing behind.
    No,
    /// Answer at once; a place in the queue may stay.
    Queue,
}

/// The answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Another claim has the lock.
    Busy {
        /// Whether something of this claim stays in the store until it is released.
        queued: bool,
        /// The time until the present lease ends, if the store knows it: a good time to ask again.
        retry_after: Option<Duration>,
    },
    /// This claim has the lock.
    Granted(Grant),
}

/// A claim that won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token of this grant.
    pub token: FencingToken,
    /// The lease of this grant.
    pub lease: Lease,
    /// The owner id under which the store knows the grant, if that is not the owner of the
    /// [`ClaimSpec`].
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
    /// The claim still holds its grant.
    Alive(Lease),
    /// The grant has ended.
    Lost(LossReason),
}

/// Why a lock was lost.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LossReason {
    /// The locker was shut down while the lock was held.
    Closed,
    /// The store says that the lock belongs to no claim or to another one. An operator freed it, or
    /// its record was deleted or evicted.
    Evicted,
    /// No renewal was confirmed before the local deadline.
    Expired,
    /// The holder kept the lock for as long as [`max_hold`](crate::LockOptions::max_hold) allows.
    MaxHold,
    /// The store's session or connection that carried the lock has ended.
    SessionLost,
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the locker was shut down",
            Self::Evicted => "the store reports that this claim no longer has it",
            Self::Expired => "no renewal was confirmed before the end of the lease",
            Self::MaxHold => "it was held for max_hold",
            Self::SessionLost => "its session with the store has ended",
        })
    }
}

/// The answer of the store to a request to free a lock. A guard's release reports
/// [`NotHeld`](Self::NotHeld) as [`ErrorKind::Lost`](crate::ErrorKind::Lost).
#[must_use = "the lock may not have been ours any more"]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// The lock was ours and is free now.
    Freed,
    /// The lock was not ours any more: the lease had ended, or another owner has the lock.
    NotHeld,
}
