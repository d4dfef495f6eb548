//! The format of a file. It is looked at before anything else: a later one may have what is not known here.

use serde::Deserialize;
use serde_json::Deserializer;

#[derive(Deserialize)]
struct Head {
    lockkit: u32,
}

/// What is no file of ours passes, as it tells no format.
///
/// # Errors
/// It is of another format than `known`.
pub(crate) fn check(bytes: &[u8], known: u32) -> Result<(), String> {
    match Head::deserialize(&mut Deserializer::from_slice(bytes)) {
        Ok(Head { lockkit }) if lockkit != known => {
            Err(format!("it has the format {lockkit}, and this program knows {known}; use a later one"))
        }
        _ => Ok(()),
    }
}
