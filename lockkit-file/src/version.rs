//! Checks the format of a file before anything else is read, because a later format may have
//! unknown parts.

use serde::Deserialize;
use serde_json::Deserializer;

#[derive(Deserialize)]
struct Head {
    lockkit: u32,
}

/// Checks the format. A file that is not lockkit's names no format, and passes.
///
/// # Errors
/// The file has another format than `known`.
pub(crate) fn check(bytes: &[u8], known: u32) -> Result<(), String> {
    match of(bytes) {
        Some(format) if format != known => Err(format!(
            "it has the format {format}, but this program knows only {known}; upgrade this program"
        )),
        _ => Ok(()),
    }
}

/// The format of a whole file, if it is newer than `known`.
pub(crate) fn newer(bytes: &[u8], known: u32) -> Option<u32> {
    of(bytes).filter(|format| *format > known)
}

fn of(bytes: &[u8]) -> Option<u32> {
    // Otherwise a list would be read as the fields in their order.
    bytes.trim_ascii_start().starts_with(b"{").then_some(())?;
    Head::deserialize(&mut Deserializer::from_slice(bytes)).ok().map(|Head { lockkit }| lockkit)
}
