//! Computes until when the job may live, and writes that to a file for the command.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use lockkit::LockGuard;
use tempfile::TempDir;

use crate::boot_time::BootTime;

/// A deadline that has grown by less is not written again. The time that a look takes changes it by
/// that much.
const GROWTH: Duration = Duration::from_millis(1);

/// The last instant at which the lock is certainly ours.
#[derive(Debug)]
pub(super) struct Deadline {
    at: BootTime,
    /// How long before `at` the job must be gone.
    margin: Duration,
    file: Option<DeadlineFile>,
}

impl Deadline {
    pub(super) fn new(guard: &LockGuard) -> Self {
        let margin = margin(guard.remaining());
        Self { at: BootTime(0), margin, file: DeadlineFile::new().ok() }
    }

    /// Looks at the lease again; returns true if it has grown.
    pub(super) fn refresh(&mut self, guard: &LockGuard) -> bool {
        let now = BootTime::now(); // before the question: its answer is older than the result
        let at = match guard.remaining() {
            Duration::ZERO => return false,
            Duration::MAX => BootTime::NEVER,
            left => now.after(left),
        };
        if at <= self.at.after(GROWTH) {
            return false;
        }
        self.at = at;
        if let Some(file) = &self.file {
            // A command that reads an old deadline stops too early, never too late.
            let _ = file.write(at);
        }
        true
    }

    /// When lockkit kills the processes that still live.
    pub(super) fn for_us(&self) -> BootTime {
        self.at.before(self.margin)
    }

    /// When the watchdog kills them.
    pub(super) fn for_watchdog(&self) -> BootTime {
        self.at.before(self.margin / 2)
    }

    pub(super) fn margin(&self) -> Duration {
        self.margin
    }

    /// When to look at the lease again: the closer to its end, the more often.
    pub(super) fn pause(&self) -> Duration {
        (self.for_watchdog().left() / 4).clamp(Duration::from_millis(2), Duration::from_secs(60))
    }

    pub(super) fn folder(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.folder.path())
    }

    pub(super) fn path(&self) -> Option<PathBuf> {
        self.file.as_ref().map(DeadlineFile::path)
    }
}

/// The time from the end of a job to the end of its lock.
pub(super) fn margin(lease: Duration) -> Duration {
    if lease == Duration::MAX {
        Duration::ZERO
    } else {
        (lease / 100).max(Duration::from_millis(100))
    }
}

/// The deadline for the command: nanoseconds of `CLOCK_BOOTTIME`, and the time of the wall clock, a
/// line each.
#[derive(Debug)]
struct DeadlineFile {
    folder: TempDir,
}

impl DeadlineFile {
    fn new() -> io::Result<Self> {
        let user = PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()));
        let make = |place: &Path| tempfile::Builder::new().prefix("lockkit-").tempdir_in(place);
        let folder = make(&user).or_else(|_| make(&std::env::temp_dir()))?;
        Ok(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("deadline")
    }

    /// A reader sees a whole deadline, never a part.
    fn write(&self, at: BootTime) -> io::Result<()> {
        let text = match at {
            BootTime::NEVER => "never\nnever\n".to_owned(),
            at => format!(
                "{}\n{}\n",
                at.0,
                humantime::format_rfc3339_millis(SystemTime::now() + at.left())
            ),
        };
        let new = self.folder.path().join("deadline.new");
        fs::write(&new, text)?;
        fs::rename(&new, self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c3_lockkit_kills_before_its_watchdog_and_the_watchdog_before_the_end() {
        for (lease, us, watchdog) in [(2, 9_900, 9_950), (30, 9_700, 9_850)] {
            let at = BootTime(10_000_000_000);
            let margin = margin(Duration::from_secs(lease));
            let deadline = Deadline { at, margin, file: None };
            let millis = |at: BootTime| at.0 / 1_000_000;
            assert_eq!(
                (millis(deadline.for_us()), millis(deadline.for_watchdog())),
                (us, watchdog)
            );
        }
    }
}
