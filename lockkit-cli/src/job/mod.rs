//! Runs a child that can't outlive the lock that it runs under.
//!
//! The command runs in a process group of its own, which dies with lockkit. A launcher (lockkit
//! again) makes that group and then becomes the command. lockkit adopts all orphans of the job, so
//! it finds every process of the job. It stops them before the lease ends.
//!
//! A watchdog does that if lockkit can't, because it was killed, is stopped or hangs. The watchdog
//! is another lockkit process, in a session of its own. It receives each new deadline.
//!
//! The job is all of its processes. If the command leaves processes behind when it ends, lockkit
//! stops them before it releases the lock.

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

/// A command that runs under a lock.
#[derive(Debug)]
pub(crate) struct Job {
    /// The program and its arguments; never empty.
    pub(crate) command: Vec<OsString>,
    /// Variables beside those that the command inherits.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    /// The time from SIGTERM to SIGKILL.
    pub(crate) grace: Duration,
    /// lockkit stops the job after this time.
    pub(crate) max_run: Option<Duration>,
    /// Reports what happens to the job.
    pub(crate) reporter: Reporter,
}

impl Job {
    /// The command as the user typed it, with the variables of its lock (see
    /// [`crate::environment`]).
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

/// The program and its arguments. A command line of `-c` is for a shell.
pub(crate) fn command(arguments: &JobArguments) -> Vec<OsString> {
    match &arguments.command_line {
        Some(line) => vec!["/bin/sh".into(), "-c".into(), line.clone()],
        None => arguments.command.clone(),
    }
}

/// How a job ended. All of its processes are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command ended by itself, with this code.
    Exited(u8),
    /// This signal ended the command.
    Signaled(i32),
    /// The lock was lost, or could not be renewed in time; the text says why.
    Lost(String),
    /// An operator asked for the lock, with this reason. The lock is still held.
    Asked(String),
    /// `--max-run` has passed.
    MaxRun,
    /// The program could not be executed.
    NotExecutable(String),
    /// There is no such program.
    NotFound,
}

/// Runs a job while `guard` holds its lock. The job's processes are gone before another owner can
/// have the lock, or the answer is an error.
///
/// # Errors
/// The job could not be started or watched. No process of it is left.
///
/// # Cancel safety
/// If this is dropped midway, all processes of the job are killed.
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
