//! What becomes the command.

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

/// Said when nothing but the command itself can fail any more.
pub(super) const READY: &[u8] = b"ready\n";

/// Becomes the command, which is killed with the lockkit that started it.
pub(crate) fn become_command(arguments: &LaunchArguments) -> Result<Exit> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::of("the command can't be bound to lockkit's life", error))?;
    // It may have died before; its watchdog may, too.
    if getppid().map(raw) != Some(arguments.parent) {
        return Err(Error::new("the lockkit that was to run the command has gone"));
    }
    let path = format!("/proc/{}/fd/{}", arguments.parent, arguments.report);
    let mut report = File::options()
        .write(true)
        .open(path)
        .map_err(|error| Error::of("the launcher can't reach lockkit through /proc", error))?;
    if arguments.terminal {
        // It leads its group. A command that does without the terminal runs all the same.
        let _ = tcsetpgrp(stdin(), getpid());
    }
    // lockkit blocked it for itself, and thereby here.
    let _ = SigSet::from(Masked::SIGTTOU).thread_unblock();
    let (program, rest) =
        arguments.command.split_first().ok_or_else(|| Error::new("there is no command"))?;
    report
        .write_all(READY)
        .map_err(|error| Error::of("the launcher can't report to lockkit", error))?;
    let error = Command::new(program).args(rest).exec();
    let exit = meaning(&error, Path::new(program));
    let _ = report.write_all(format!("{} {error}", exit.code()).as_bytes());
    Ok(exit)
}

fn meaning(error: &io::Error, program: &Path) -> Exit {
    // A script whose interpreter is missing is found all the same.
    let is_there = || program.components().nth(1).is_some() && program.exists();
    match error.kind() {
        ErrorKind::NotFound if !is_there() => Exit::NotFound,
        _ => Exit::NotExecutable,
    }
}
