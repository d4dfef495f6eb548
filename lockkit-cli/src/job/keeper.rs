//! What lets a lock outlive lockkit for as long as its watchdog has to kill.

use std::fs::File;

use lockkit::LockGuard;

use crate::error::Result;

/// The file that the system unlocks when lockkit ends, and the last one that has it; nothing where
/// a lease does that.
#[cfg(feature = "file")]
pub(super) fn keeper(guard: &LockGuard) -> Result<Option<File>> {
    let file = lockkit::file::SessionFile::of(guard).map(|session| session.file()).transpose();
    file.map_err(|error| crate::error::Error::of("the lock can't be kept for the watchdog", error))
}

/// No store of this build frees a lock with its process.
#[cfg(not(feature = "file"))]
#[expect(clippy::unnecessary_wraps, reason = "the other one may fail")]
pub(super) const fn keeper(_: &LockGuard) -> Result<Option<File>> {
    Ok(None)
}
