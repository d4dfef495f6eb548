//! The types that an operator gets from a look at a lock (C14).

use std::{fmt, time::Duration};

use super::Mode;
use crate::token::{FencingToken, OwnerId};

/// The role of the server that answers a backend.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A member of a group that agrees on each change.
    Member,
    /// The server that takes changes.
    Primary,
    /// A server that takes no changes: nothing can be locked there.
    Replica,
    /// The store does not report the role.
    Unknown,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Member => "member",
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Unknown => "unknown",
        })
    }
}

/// A look at one lock.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The holders at this moment.
    pub holders: Vec<Holder>,
    /// The number of waiters, where the store knows it.
    pub waiters: Option<u64>,
}

impl Inspection {
    /// A lock held by `holders`.
    #[must_use]
    pub const fn new(holders: Vec<Holder>, waiters: Option<u64>) -> Self {
        Self { holders, waiters }
    }
}

/// One holder of a lock.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The owner id of the holder's claim; `None` if the holder is no lockkit client.
    pub owner: Option<OwnerId>,
    /// The mode in which it holds the lock.
    pub mode: Mode,
    /// The token of the grant; `None` if the holder is no lockkit client.
    pub token: Option<FencingToken>,
    /// The label that the holder gave, or the text that a foreign client wrote.
    pub label: Option<String>,
    /// The time since the grant, where the store knows it.
    pub age: Option<Duration>,
    /// The time that its lease still lasts by the store's clock; `None` where the store has no
    /// leases.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// A holder with a known mode and nothing else.
    #[must_use]
    pub const fn new(mode: Mode) -> Self {
        Self { owner: None, mode, token: None, label: None, age: None, remaining: None }
    }

    /// Sets owner and token.
    #[must_use]
    pub const fn with_grant(mut self, owner: OwnerId, token: FencingToken) -> Self {
        self.owner = Some(owner);
        self.token = Some(token);
        self
    }

    /// Sets the label.
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Option<String>>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets the age.
    #[must_use]
    pub fn with_age(mut self, age: impl Into<Option<Duration>>) -> Self {
        self.age = age.into();
        self
    }

    /// Sets the remaining lease.
    #[must_use]
    pub fn with_remaining(mut self, remaining: impl Into<Option<Duration>>) -> Self {
        self.remaining = remaining.into();
        self
    }
}
