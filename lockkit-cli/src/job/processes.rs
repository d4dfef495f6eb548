//! Reads the processes of this host from /proc.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _};

use rustix::process::{Pid, getpid};

use crate::error::{Error, Result};

/// A process that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
    /// When the process began, in units of the kernel. Another process with the same number began
    /// later.
    pub(super) start: u64,
}

/// Checks that /proc is of our process namespace. In another namespace the same numbers mean other
/// processes.
///
/// # Errors
/// /proc is of another namespace, or it can't be read.
pub(crate) fn check_proc() -> Result<()> {
    let failed = |error| {
        Error::of(
            "could not read /proc, where lockkit finds the processes of its command; mount it",
            error,
        )
    };
    let own = fs::read_link("/proc/self").map_err(failed)?;
    if own.as_os_str() == getpid().to_string().as_str() {
        return Ok(());
    }
    Err(Error::new(
        "/proc belongs to another process namespace, so lockkit could not find the processes of \
         its command; mount /proc again in this one (unshare --mount-proc)",
    ))
}

/// All processes that live. One that ends meanwhile may be among them.
pub(super) fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| one(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

/// The process with this number, unless it is dead.
pub(super) fn one(pid: i32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(Pid::from_raw(pid)?, &stat)
}

fn parse(pid: Pid, stat: &[u8]) -> Option<Process> {
    // The process name before this may contain any characters.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
    let mut number = || fields.next()?.parse().ok();
    let parent = number()?;
    let group = number()?;
    let session = number()?;
    let threads: u32 = fields.nth(13)?.parse().ok()?;
    // Such a process whose first thread has ended lives on in its other threads.
    if is_dead && threads < 2 {
        return None;
    }
    let start = fields.nth(1)?.parse().ok()?;
    Some(Process { pid, parent, group, session, start })
}

/// The value that a variable had when the process began its program. `None` also if lockkit may not
/// read another user's environment.
pub(super) fn variable(pid: Pid, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes)
    });
    value.map(|value| value.to_string_lossy().into_owned())
}

/// The first argument of a process.
pub(super) fn argument(pid: Pid) -> Option<String> {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    let argument = line.split(|byte| *byte == 0).nth(1)?;
    Some(String::from_utf8_lossy(argument).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All fields after the state.
    const REST: &str = "3 4 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0";

    #[test]
    fn a_name_may_hold_anything() {
        let pid = Pid::from_raw(7).unwrap();
        let process = parse(pid, format!("7 (a) R 1 (b) S {REST}").as_bytes()).unwrap();
        assert_eq!(process, Process { pid, parent: 3, group: 4, session: 5, start: 99 });
    }

    #[test]
    fn the_dead_are_left_out() {
        let dead = format!("7 (x) Z {REST}");
        assert_eq!(parse(Pid::from_raw(7).unwrap(), dead.as_bytes()), None);
    }

    #[test]
    fn one_whose_first_thread_has_ended_lives() {
        let half_dead = format!("7 (x) Z {}", REST.replace(" 1 0 99", " 2 0 99"));
        parse(Pid::from_raw(7).unwrap(), half_dead.as_bytes()).unwrap();
    }

    #[test]
    fn this_process_is_among_them() {
        let pid = getpid();
        let found = all().into_iter().find(|process| process.pid == pid).unwrap();
        assert_eq!(found.group, crate::group::own_group());
    }
}
