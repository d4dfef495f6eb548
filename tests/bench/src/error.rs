//! The error of this crate: the action that failed, and its cause.

use std::error::Error as StdError;

/// The action that failed, and its cause. One line; no passwords.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", .source.as_ref().map_or_else(String::new, |source| format!(": {source}")))]
pub struct Error {
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with no other error behind it.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// An error with the action that failed, and its cause.
    pub fn of(what: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }
}
