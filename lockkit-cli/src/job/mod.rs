//! A child that can't outlive the lock that it runs under.

pub(crate) mod launch;

use std::{ffi::OsString, future::Future, time::Duration};

use lockkit::LockGuard;

use crate::error::Result;

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

/// Runs a job while `guard` holds its lock. Before anybody else can have the lock, the job's processes are gone, or the
/// answer is an error.
///
/// # Errors
/// The job could not be started or watched.
pub(crate) async fn run_under(
    job: &Job,
    guard: &LockGuard,
    asked: impl Future<Output = String>,
) -> Result<Ended> {
    todo!("{job:?} {guard:?} {}", std::any::type_name_of_val(&asked))
}
