//! The error of a run that could not start, or of a history that could not be read.

use std::error::Error as StdError;

/// An error in one line: what failed, and why. It contains no passwords.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", .source.as_ref().map_or_else(String::new, |source| format!(": {source}")))]
pub struct Error {
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a source.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// An error with its source.
    pub fn of(what: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }
}
