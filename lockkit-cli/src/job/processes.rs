//! The processes of this host, as /proc has them.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _};

use rustix::process::Pid;

/// One that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) session: i32,
}

/// All that live; one that ends meanwhile may be among them.
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
    // The name before it may hold anything.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    let mut number = || fields.next()?.parse().ok();
    Some(Process { pid, parent: number()?, group: number()?, session: number()? })
}

/// What a variable was when the process began its program; `None` also if that is another user's business.
pub(super) fn variable(pid: Pid, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).ok()?;
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(OsStr::from_bytes));
    value.map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let pid = Pid::from_raw(7).unwrap();
        let process = parse(pid, b"7 (a) R 1 (b) S 3 4 5 0 -1").unwrap();
        assert_eq!(process, Process { pid, parent: 3, group: 4, session: 5 });
    }

    #[test]
    fn the_dead_are_left_out() {
        assert_eq!(parse(Pid::from_raw(7).unwrap(), b"7 (x) Z 3 4 5 0 -1"), None);
    }

    #[test]
    fn this_process_is_among_them() {
        let pid = rustix::process::getpid();
        let found = all().into_iter().find(|process| process.pid == pid).unwrap();
        assert_eq!(found.group, rustix::process::getpgrp().as_raw_nonzero().get());
    }
}
