//! What an operator sees of a lock (C14).

use std::{fmt, time::Duration};

use super::Mode;
use crate::token::{FencingToken, OwnerId};

/// The part that the server plays which answers a backend.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A member of a group that agrees on each change.
    Member,
    /// The one that takes changes.
    Primary,
    /// One that takes no changes: nothing can be locked there.
    Replica,
    /// The store does not tell.
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
    /// Who holds it now.
    pub holders: Vec<Holder>,
    /// How many wait for it, where the store knows.
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
    /// The identity of its claim; `None` if it is no lockkit client.
    pub owner: Option<OwnerId>,
    /// How it holds the lock.
    pub mode: Mode,
    /// Its token; `None` if it is no lockkit client.
    pub token: Option<FencingToken>,
    /// The text it gave, or what a foreign client wrote.
    pub label: Option<String>,
    /// How long ago it was granted, where the store knows.
    pub age: Option<Duration>,
    /// How long its lease still lasts by the store's time; `None` where the store has no leases.
    pub remaining: Option<Duration>,
}

impl Holder {
    /// A holder of which only the mode is known.
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
