//! Reads the facts about this host and this process.

use std::{
    env, fs, process,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const SINCE_BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// The time of an action, on two clocks.
#[derive(Clone, Debug)]
pub(crate) struct Now {
    /// µs since the host was started. It differs in a time namespace, so data that other processes
    /// read must not depend on it.
    pub(crate) up: u64,
    /// µs since 1970.
    pub(crate) wall: u64,
}

impl Now {
    pub(crate) fn tell() -> Self {
        let up = clock_gettime(SINCE_BOOT);
        let seconds = u64::try_from(up.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(up.tv_nsec).unwrap_or(0);
        Self { up: seconds * 1_000_000 + nanos / 1_000, wall: micros(wall_clock()) }
    }

    /// Whether this time, in µs since 1970, was before the host was started.
    pub(crate) fn is_before_boot(&self, wall: u64) -> bool {
        wall < self.wall.saturating_sub(self.up)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "here the host is the server, and tokens follow its time"
)]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// µs since 1970.
pub(crate) fn micros(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros())
        .unwrap_or(u64::MAX)
}

pub(crate) fn host_name() -> String {
    line_of("/proc/sys/kernel/hostname")
}

/// The program that a process runs; for another process, only if the system shows it.
pub(crate) fn program_of(pid: u32) -> String {
    line_of(&format!("/proc/{pid}/comm"))
}

/// The program of this process.
pub(crate) fn program() -> String {
    let path = env::current_exe().ok();
    let name = path
        .as_deref()
        .and_then(|path| path.file_name())
        .map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| program_of(process::id()))
}

fn line_of(path: &str) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}
