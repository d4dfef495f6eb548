//! Lets a lock outlive lockkit until its watchdog has killed the job.

use std::fs::File;

use lockkit::LockGuard;

use crate::error::Result;

/// The file that holds the lock. The system unlocks it when the last process that has it open ends.
/// `None` on a store with leases, which end by themselves.
#[cfg(feature = "file")]
pub(super) fn keeper(guard: &LockGuard) -> Result<Option<File>> {
    let file = lockkit::file::SessionFile::of(guard).map(|session| session.file()).transpose();
    file.map_err(|error| crate::error::Error::of("could not keep the lock for the watchdog", error))
}

/// No store of this build frees a lock when its process ends.
#[cfg(not(feature = "file"))]
#[expect(clippy::unnecessary_wraps, reason = "the other one may fail")]
pub(super) const fn keeper(_: &LockGuard) -> Result<Option<File>> {
    Ok(None)
}
