//! A child that can't outlive the lock that it runs under.
//!
//! The command runs in a process group of its own, which a launcher (lockkit again) makes of itself
//! and which dies with lockkit. lockkit adopts all orphans of the job, and thereby finds every
//! process of it. It stops them before the lease ends. Where it can't, because it was killed, is
//! stopped or hangs, a watchdog does: lockkit once more, in a session of its own, that is told each
//! new deadline.
//!
//! The job is all of its processes: what the command leaves behind when it ends is stopped, too,
//! before the lock is given back.

mod deadline;
mod job_processes;
mod keeper;
pub(crate) mod launch;
mod lease;
mod processes;
mod running;
mod start;
mod terminal;
pub(crate) mod watchdog;
mod watchdog_handle;

use std::{ffi::OsString, future::Future, time::Duration};

use lockkit::LockGuard;

#[cfg(test)]
pub(crate) use self::lease::longest_outage;
use self::running::Running;
pub(crate) use self::{lease::check_grace, processes::check_proc};
use crate::{cli::JobArguments, error::Result, reporter::Reporter, signals::Signals};

/// A command to be run under a lock.
#[derive(Debug)]
pub(crate) struct Job {
    /// The program and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    /// Beside what it inherits.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// From SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
    /// It is stopped after so long.
    pub(crate) max_run: Option<Duration>,
    /// Who tells what happens to it.
    pub(crate) reporter: Reporter,
}

impl Job {
    /// What was typed, with the variables of its lock (see [`crate::environment`]).
    pub(crate) fn new(
        arguments: &JobArguments,
        grace: Duration,
        environment: Vec<(&'static str, OsString)>,
        reporter: Reporter,
    ) -> Self {
        Self {
            command: command(arguments),
            environment,
            grace,
            max_run: arguments.max_run,
            reporter,
        }
    }
}

/// The program and its arguments: those of `-c` are for a shell.
pub(crate) fn command(arguments: &JobArguments) -> Vec<OsString> {
    match &arguments.command_line {
        Some(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        None => arguments.command.clone(),
    }
}

/// How a job ended, with all of its processes gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this code.
    Exited(u8),
    /// By this signal.
    Signaled(i32),
    /// The lock was lost, or could not be renewed in time; why.
    Lost(String),
    /// An operator asked for the lock, with this reason. It is still held.
    Asked(String),
    /// Its time was over.
    MaxRun,
    /// The program could not be executed.
    NotExecutable(String),
    /// There is no such program.
    NotFound,
}

/// Runs a job while `guard` holds its lock. Before anybody else can have the lock, the job's
/// processes are gone, or the answer is an error.
///
/// # Errors
/// The job could not be started or watched. None of it is left.
///
/// # Cancel safety
/// Dropped midway, all of the job is killed.
pub(crate) async fn run_under(
    job: &Job,
    guard: &LockGuard,
    signals: &Signals,
    asked: impl Future<Output = String>,
) -> Result<Ended> {
    if let Err(lost) = lease::make_room(guard, job.grace).await? {
        return Ok(Ended::Lost(lost));
    }
    Running::start(job, guard, signals)?.until_end(asked).await
}
