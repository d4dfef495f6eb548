//! Writes to standard output and standard error. A failure there is no panic: standard error may be
//! closed or full, and a reader may close standard output.

use std::{
    env,
    fmt::Display,
    io::{self, ErrorKind, IsTerminal as _, Write as _},
};

use serde::Serialize;

use crate::error::{Error, Result};

/// Writes a line to standard error. A failure is ignored, because there is no other place to report
/// it.
pub(crate) fn aside(text: impl Display) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Writes a line to standard output.
///
/// # Errors
/// The line can't be written. If the reader, such as `head`, has closed the output, that [is no
/// failure](Error::is_reader_gone).
pub(crate) fn line(text: impl Display) -> Result<()> {
    whole(format!("{text}\n").as_bytes())
}

/// Writes text that has its own ends of lines; the rest is as for [`line`].
pub(crate) fn whole(text: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Error::reader_gone(),
        _ => Error::of("could not write to standard output", error),
    })
}

/// Whether standard output is a terminal whose user wants colors (<https://no-color.org>).
pub(crate) fn has_colors() -> bool {
    io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    line(
        serde_json::to_string(value)
            .map_err(|error| Error::of("could not write an answer as JSON", error))?,
    )
}

/// Replaces control characters, which could move a terminal's cursor: other programs may have
/// written the text.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
