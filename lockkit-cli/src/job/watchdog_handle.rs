//! Starts the watchdog and sends it orders.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{ChildStdin, Stdio},
};

use rustix::{
    io::ioctl_fionbio,
    process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid},
};

use super::{
    job_processes::{WATCHDOG, raw},
    start::lockkit,
};
use crate::{
    boot_time::BootTime,
    error::{Error, Result},
};

/// The watchdog of a job. It kills the job if it can't hear from lockkit any more.
#[derive(Debug)]
pub(super) struct WatchdogHandle {
    pub(super) pid: Pid,
    pipe: ChildStdin,
}

/// Everything that the watchdog must know at its start.
#[derive(Debug)]
pub(super) struct Orders {
    pub(super) mark: String,
    pub(super) spared: Vec<i32>,
    pub(super) adopts_strangers: bool,
    pub(super) folder: Option<PathBuf>,
    /// The file that keeps the lock for as long as the watchdog has it open, too.
    pub(super) keeper: Option<File>,
}

impl WatchdogHandle {
    pub(super) fn start(orders: &Orders) -> Result<Self> {
        let failed = |error| Error::of("could not start the watchdog of the command", error);
        let mut command = lockkit();
        command.arg(WATCHDOG).arg(format!("--parent={}", raw(getpid())));
        command.arg(format!("--mark={}", orders.mark));
        command.args(orders.spared.iter().map(|pid| format!("--spare={pid}")));
        if orders.adopts_strangers {
            command.arg("--adopts-strangers");
        }
        if let Some(folder) = &orders.folder {
            command.arg("--folder").arg(folder);
        }
        // The watchdog must not look like a part of an outer job, and must not keep a folder busy.
        command.env_clear().current_dir(Path::new("/"));
        let keeper = orders.keeper.as_ref().map(File::try_clone).transpose().map_err(failed)?;
        // The watchdog writes nothing to standard output.
        command.stdin(Stdio::piped()).stdout(keeper.map_or_else(Stdio::null, Stdio::from));
        let mut child = command.spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        let pipe =
            child.stdin.take().ok_or_else(|| Error::new("the watchdog has no standard input"))?;
        // A watchdog that hangs must not block lockkit.
        ioctl_fionbio(&pipe, true).map_err(|error| failed(error.into()))?;
        Ok(Self { pid, pipe })
    }

    pub(super) fn tell_group(&mut self, group: i32, session: i32) -> Result<()> {
        self.tell(&format!("group {group} {session}\n"))
    }

    pub(super) fn tell_deadline(&mut self, deadline: BootTime) -> Result<()> {
        self.tell(&format!("until {}\n", deadline.0))
    }

    /// Kills a watchdog that has nothing to watch, or that does not listen. When this returns, the
    /// watchdog has ended, so that an outer lockkit can't take it for a part of its own job.
    pub(super) fn kill(self) {
        // It is killed before the pipe closes: a closed pipe means that lockkit was killed.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        self.pipe
            .write_all(line.as_bytes())
            .map_err(|error| Error::of("could not write to the watchdog of the command", error))
    }
}
