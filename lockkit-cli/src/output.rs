//! What commands without a child write to standard output.

use std::{
    fmt::Display,
    io::{self, ErrorKind, Write as _},
    process,
};

use serde::Serialize;

use crate::error::{Error, Result};

/// Writes a line. A reader that has gone, such as `head`, ends the program without a word, as it ends others.
pub(crate) fn line(text: impl Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => Err(Error::of("standard output can't be written", error)),
    }
}

/// Writes a line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).map_err(|error| Error::of("an answer is no JSON", error))?)
}

/// The text without what would move a terminal's cursor: other programs may have written it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
