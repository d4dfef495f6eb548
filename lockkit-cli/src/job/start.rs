//! Starts the command through the launcher.

use std::{
    env,
    ffi::OsString,
    fs::File,
    io::Read as _,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Command,
};

use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, getpid},
};

use super::{
    Ended, Job,
    job_processes::{MARK_SEPARATOR, raw},
    launch::READY,
    terminal::Terminal,
};
use crate::{
    error::{Error, Result},
    exit::Exit,
    variables,
};

/// A command that starts this same lockkit, even after an upgrade has replaced its file.
pub(super) fn lockkit() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("lockkit");
    // A URL may hold a password, and other processes of the user can read the child's environment.
    // The file of a URL is no secret. But where LOCKKIT_URL had precedence over it, a lockkit
    // inside the command would lock in another store.
    if env::var_os(variables::URL).is_some_and(|url| !url.is_empty()) {
        command.env_remove(variables::URL_FILE);
    }
    command.env_remove(variables::URL);
    command
}

/// A command that lockkit has started.
#[derive(Debug)]
pub(super) struct Started {
    /// The process, whose number is also that of its process group.
    pub(super) pid: Pid,
    report: Report,
}

impl Started {
    pub(super) fn start(
        job: &Job,
        environment: &[(&'static str, OsString)],
        mark: &str,
        terminal: Option<&Terminal>,
    ) -> Result<Self> {
        let report = Report::new()?;
        let mut command = lockkit();
        command.arg("__launch").arg(format!("--parent={}", raw(getpid())));
        command.arg(format!("--report={}", report.writer.as_raw_fd()));
        if terminal.is_some() {
            command.arg("--terminal");
        }
        command.arg("--").args(&job.command);
        // These variables of an outer job do not describe this job.
        command.env_remove("LOCKKIT_SLOT").env_remove("LOCKKIT_DEADLINE_FILE");
        command.envs(job.environment.iter().chain(environment).map(|(name, value)| (name, value)));
        command.env(variables::MARK, marks(mark));
        command.process_group(0);
        let child =
            command.spawn().map_err(|error| Error::of("could not start the command", error))?;
        Ok(Self { pid: Pid::from_child(&child), report })
    }

    /// Why the command could not be executed; for use once its process has ended with a code.
    ///
    /// # Errors
    /// The launcher failed before it tried to execute the command.
    pub(super) fn refusal(&self) -> Result<Option<Ended>> {
        self.report.read()
    }
}

/// This job's mark, after those of the jobs that it runs in.
fn marks(mark: &str) -> OsString {
    let mut marks = env::var_os(variables::MARK).unwrap_or_default();
    if !marks.is_empty() {
        marks.push(MARK_SEPARATOR.to_string());
    }
    marks.push(mark);
    marks
}

/// A pipe that no command inherits, and that the launcher finds in /proc. It distinguishes a
/// command's own codes 126 and 127 from those of a command that was never executed.
#[derive(Debug)]
struct Report {
    reader: File,
    writer: OwnedFd,
}

impl Report {
    fn new() -> Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|error| Error::of("could not make a pipe", error))?;
        Ok(Self { reader: reader.into(), writer })
    }

    fn read(&self) -> Result<Option<Ended>> {
        let mut text = [0; 512];
        // If the pipe is empty, that is an error, too: our own writer keeps the pipe open.
        let length = (&self.reader).read(&mut text).unwrap_or(0);
        let text =
            text.get(..length).and_then(|text| text.strip_prefix(READY)).ok_or_else(|| {
                Error::new(
                    "could not start the command: its launcher failed, and reported the cause above",
                )
            })?;
        let text = String::from_utf8_lossy(text);
        Ok(text.split_once(' ').map(|(code, reason)| {
            if code == Exit::NotFound.code().to_string() {
                return Ended::NotFound;
            }
            Ended::NotExecutable(reason.to_owned())
        }))
    }
}
