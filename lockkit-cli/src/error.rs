//! The one error type of the command line.

use std::{borrow::Cow, error::Error as StdError, fmt};

/// A `Result` whose error is [`Error`].
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what failed and why, in one line and without a password.
#[derive(Debug)]
pub(crate) struct Error {
    context: Cow<'static, str>,
    source: Option<Box<dyn StdError + Send + Sync>>,
    reader_gone: bool,
}

impl Error {
    pub(crate) fn new(context: impl Into<Cow<'static, str>>) -> Self {
        Self { context: context.into(), source: None, reader_gone: false }
    }

    pub(crate) fn of(
        context: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { context: context.into(), source: Some(source.into()), reader_gone: false }
    }

    /// The reader of standard output has closed it.
    pub(crate) fn reader_gone() -> Self {
        Self { reader_gone: true, ..Self::new("the reader of standard output has closed it") }
    }

    /// Whether lockkit ends silently because the reader closed standard output, as other programs
    /// do.
    pub(crate) fn is_reader_gone(&self) -> bool {
        self.reader_gone
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)?;
        self.source.iter().try_for_each(|source| write!(f, ": {source}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source: &(dyn StdError + 'static) = self.source.as_deref()?;
        Some(source)
    }
}

impl From<lockkit::Error> for Error {
    fn from(error: lockkit::Error) -> Self {
        Self::new(error.to_string())
    }
}
