//! Reports what the settings of a store mean for its locks.

use std::fmt;

/// How much a [`Diagnostic`] matters.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The setting is as it should be.
    Good,
    /// The setting could not be read, for example because a privilege is missing.
    Unknown,
    /// The setting costs speed or comfort, and breaks no promise.
    Note,
    /// A promise is broken when the server fails.
    Weak,
    /// A promise is broken in daily use.
    Unsafe,
}

impl Severity {
    /// The severity as one word.
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
    /// The setting or state that was examined, such as `maxmemory-policy`.
    pub what: String,
    /// The value that was found, such as `allkeys-lru`.
    pub found: String,
    /// The meaning of the value, and what to do about it; empty if the value is as it should be.
    pub advice: String,
}

impl Diagnostic {
    /// A diagnostic without advice.
    #[must_use]
    pub fn new(severity: Severity, what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { severity, what: what.into(), found: found.into(), advice: String::new() }
    }

    /// Sets the meaning of the value, and what to do about it.
    #[must_use]
    pub fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }
}
