//! What a look at a store's settings says of its locks.

use std::fmt;

/// How much a [`Diagnostic`] matters.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// As it should be.
    Good,
    /// Nothing can be told of it, such as for want of a privilege.
    Unknown,
    /// It costs speed or comfort, and breaks no promise.
    Note,
    /// A promise is broken when the server fails.
    Weak,
    /// A promise is broken in daily use.
    Unsafe,
}

impl Severity {
    /// One word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Unknown => "unknown",
            Self::Note => "note",
            Self::Weak => "weak",
            Self::Unsafe => "unsafe",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One setting or state of a store, and what it means for locks.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How much it matters.
    pub severity: Severity,
    /// What was looked at, such as `maxmemory-policy`.
    pub what: String,
    /// What was found there, such as `allkeys-lru`.
    pub found: String,
    /// What that means, and what to do about it; empty if it is as it should be.
    pub advice: String,
}

impl Diagnostic {
    /// A diagnostic without advice.
    #[must_use]
    pub fn new(severity: Severity, what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { severity, what: what.into(), found: found.into(), advice: String::new() }
    }

    /// Says what it means, and what to do about it.
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}
