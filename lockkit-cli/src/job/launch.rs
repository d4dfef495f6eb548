//! The launcher, which becomes the command.

use std::{
    fs::File,
    io::{self, ErrorKind, Write as _, stdin},
    os::unix::process::CommandExt as _,
    path::Path,
    process::Command,
};

use nix::sys::signal::{SigSet, Signal as Masked};
use rustix::{
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
    termios::tcsetpgrp,
};

use super::job_processes::raw;
use crate::{
    cli::LaunchArguments,
    error::{Error, Result},
    exit::Exit,
};

/// Reported when only the execution of the command can still fail.
pub(super) const READY: &[u8] = b"ready\n";

/// Becomes the command, which is killed when the lockkit that started it dies.
pub(crate) fn become_command(arguments: &LaunchArguments) -> Result<Exit> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::of("could not tie the command's life to lockkit's", error))?;
    // The parent may have died before that call, and its watchdog too.
    if getppid().map(raw) != Some(arguments.parent) {
        return Err(Error::new("lockkit ended before it ran the command"));
    }
    let path = format!("/proc/{}/fd/{}", arguments.parent, arguments.report);
    let mut report = File::options()
        .write(true)
        .open(path)
        .map_err(|error| Error::of("the launcher could not find lockkit in /proc", error))?;
    if arguments.terminal {
        // The launcher leads its group. If it can't take the terminal, the command still runs.
        let _ = tcsetpgrp(stdin(), getpid());
    }
    // lockkit blocked this signal for itself, and the launcher inherited that.
    let _ = SigSet::from(Masked::SIGTTOU).thread_unblock();
    let (program, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| Error::new("the command line names no command"))?;
    report
        .write_all(READY)
        .map_err(|error| Error::of("the launcher could not report to lockkit", error))?;
    let error = Command::new(program).args(rest).exec();
    let exit = meaning(&error, Path::new(program));
    let _ = report.write_all(format!("{} {error}", exit.code()).as_bytes());
    Ok(exit)
}

fn meaning(error: &io::Error, program: &Path) -> Exit {
    // If only a script's interpreter is missing, the script itself exists.
    let is_there = || program.components().nth(1).is_some() && program.exists();
    match error.kind() {
        ErrorKind::NotFound if !is_there() => Exit::NotFound,
        _ => Exit::NotExecutable,
    }
}
