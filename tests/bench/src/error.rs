//! Why something could not be measured, or a report not be read.

use std::error::Error as StdError;

/// What was tried, and what stood in its way. One line; no passwords.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}", .source.as_ref().map_or_else(String::new, |source| format!(": {source}")))]
pub struct Error {
    what: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with no other one behind it.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    /// What was tried, and why it failed.
    pub fn of(what: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }
}
