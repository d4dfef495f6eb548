//! Describes a backend: its capabilities, and the exceptions from its promises. The conformance
//! suite chooses its cases by these fields.

use std::time::Duration;

/// The description of a backend.
///
/// A later version may add fields. Write those that differ, and take the rest from
/// [`Descriptor::new`]:
///
/// ```
/// use std::time::Duration;
///
/// use lockkit_core::spi::{Capabilities, Descriptor};
///
/// const DESCRIPTOR: Descriptor = Descriptor {
///     capabilities: Capabilities { exclusive: true, labels: true, ..Capabilities::NONE },
///     takeover_delay: Duration::from_millis(100),
///     ..Descriptor::new("table")
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// A short name for errors and logs, such as `redis`.
    pub name: &'static str,
    /// The features that the backend has.
    pub capabilities: Capabilities,
    /// The conditions that may break a promise.
    pub exceptions: Exceptions,
    /// The longest time that one attempt may wait inside the store; zero if the store can't wait.
    pub max_patience: Duration,
    /// The pauses after which a waiter asks again when nothing wakes it.
    pub poll: Poll,
    /// The δ of promise C9: how much later than the ttl the name of a dead holder may become free.
    pub takeover_delay: Duration,
    /// The shortest ttl that the store can give. [`Backend::claim`](super::Backend::claim) refuses
    /// a shorter one with [`InvalidOption`](crate::ErrorKind::InvalidOption).
    pub min_ttl: Duration,
    /// The most that a grant or a renewal confirms, however long the ttl is.
    pub longest_lease: Duration,
    /// The object that a lease belongs to.
    pub lease_scope: LeaseScope,
    /// The rules for when holds are renewed.
    pub renewal_pacing: RenewalPacing,
}

impl Descriptor {
    /// A store without any capability or exception.
    ///
    /// Its attempts never wait in the store, and its waiters poll every 10 ms to 200 ms. It gives
    /// any ttl. Each claim has its own lease, and is renewed on its own.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            capabilities: Capabilities::NONE,
            exceptions: Exceptions::NONE,
            max_patience: Duration::ZERO,
            poll: Poll { min: Duration::from_millis(10), max: Duration::from_millis(200) },
            takeover_delay: Duration::ZERO,
            min_ttl: Duration::ZERO,
            longest_lease: Duration::MAX,
            lease_scope: LeaseScope::Claim,
            renewal_pacing: RenewalPacing { longest: Duration::MAX, together: false },
        }
    }

    /// Names the event that ends a lock when no release reached the store.
    pub(crate) fn last_resort(&self) -> &'static str {
        if self.exceptions.no_lease {
            "the backend frees the lock when it can, or at its end"
        } else if self.lease_scope == LeaseScope::Session {
            "the end of the session will end the lock"
        } else {
            "the lease will end the lock"
        }
    }
}

/// The object that a lease belongs to. This object must end before the store frees a lock by
/// itself.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseScope {
    /// Each claim has a lease of its own, which ends when this claim is not renewed.
    #[default]
    Claim,
    /// Each claim has its own connection, and its lock begins and ends with that connection.
    /// Nothing stays of an attempt that got no answer, and no other connection can act for its
    /// owner.
    Connection,
    /// All claims live on the lease of the backend's session or connection. The backend keeps up
    /// that lease by itself.
    ///
    /// A claim that is not renewed stays in the store until it is released or the session ends. The
    /// timeout of a session is [`min_ttl`](Descriptor::min_ttl). A grant lasts for what is left of
    /// that timeout, at most [`longest_lease`](Descriptor::longest_lease), even if the claim asked
    /// for a longer ttl.
    Session,
}

/// The pause between two attempts of a waiter. It starts at `min` and doubles up to `max`, with a
/// jitter of ±25 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poll {
    /// The first pause.
    pub min: Duration,
    /// The longest pause.
    pub max: Duration,
}

/// When holds are renewed. This adds to the rule that a renewal comes after a third of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenewalPacing {
    /// The longest pause between two renewals, however long the ttl is. It is not zero.
    ///
    /// It is for a store in which only a renewal shows that a connection has died. A renewal
    /// without an answer is repeated within this pause, too. It does not apply to a hold that its
    /// user renews by hand.
    pub longest: Duration,
    /// Renewals that are due at about the same time become due at the same instant: for a backend
    /// that sends them as one request.
    pub together: bool,
}

/// The features that a backend has. If a capability is off, each call that needs it fails with a
/// clear error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// One owner at a time.
    pub exclusive: bool,
    /// Many readers at once, while there is no writer.
    pub shared: bool,
    /// k of n permits.
    pub permits: bool,
    /// Waiters are granted in the order in which the store saw them (C12).
    pub fair: bool,
    /// The store wakes waiters.
    pub push: bool,
    /// `inspect` knows the number of waiters.
    pub waiter_count: bool,
    /// `inspect` reports the label that the holder gave.
    pub labels: bool,
    /// The store can list the names in use.
    pub names: bool,
    /// The holder of a mutex or an election can write a note beside it.
    pub notes: bool,
    /// The store reports the time of its clock.
    pub time: bool,
    /// A renewal can ask for another length than the claim's ttl.
    pub extend: bool,
    /// One request can transfer a held grant to another owner of the process.
    pub transfer: bool,
    /// A request can raise the token of a held grant.
    pub raise_token: bool,
    /// A claim of another process can continue a held grant. Each claim must have a lease of its
    /// own ([`LeaseScope::Claim`]).
    pub tickets: bool,
}

impl Capabilities {
    /// No capability.
    pub const NONE: Self = Self {
        exclusive: false,
        shared: false,
        permits: false,
        fair: false,
        push: false,
        waiter_count: false,
        labels: false,
        names: false,
        notes: false,
        time: false,
        extend: false,
        transfer: false,
        raise_token: false,
        tickets: false,
    };
}

/// The conditions that may break C1 and C3. C4 still holds wherever the store's data survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exceptions {
    /// A failover can lose a grant that was acknowledged.
    pub async_failover: bool,
    /// The store may free the lock early when a connection dies.
    pub connection_bound: bool,
    /// The lock has no lease: it ends only with its process.
    pub no_lease: bool,
    /// A step of the server's wall clock ends leases early or late.
    pub server_clock_step: bool,
}

impl Exceptions {
    /// Nothing breaks the promises.
    pub const NONE: Self = Self {
        async_failover: false,
        connection_bound: false,
        no_lease: false,
        server_clock_step: false,
    };
}
