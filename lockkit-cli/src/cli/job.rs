//! Commands that run a child under a lock.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;

use super::duration;
use crate::exit::Exit;

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The lock: 1 to 255 bytes, less the namespace
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) wait: WaitArguments,
    /// Share the read/write lock NAME with others that share it. It is another lock than that of a
    /// plain `run`; use --write to exclude those that share it
    #[arg(long, short, conflicts_with_all = ["write", "permits"])]
    pub(crate) shared: bool,
    /// Take the read/write lock NAME alone
    #[arg(long, short = 'x', visible_alias = "exclusive", conflicts_with = "permits")]
    pub(crate) write: bool,
    /// Take K of the N permits of the semaphore NAME; all its users must give the same N
    #[arg(long, value_name = "K/N")]
    pub(crate) permits: Option<Permits>,
    /// Keep the lock for at least this long, even if the command ends sooner: hosts whose clocks
    /// differ then run a short job once
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) hold_for: Option<Duration>,
    #[command(flatten)]
    pub(crate) job: JobArguments,
}

/// How long to wait for the lock.
#[derive(Debug, Args)]
pub(crate) struct WaitArguments {
    /// Don't wait when the lock is busy
    #[arg(long, short = 'n', alias = "nb", conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Wait for at most this long; by default as long as it takes
    #[arg(long, short, visible_alias = "timeout", value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the lock is busy
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = Exit::BUSY)]
    pub(crate) conflict_exit_code: u8,
}

/// Arguments of all commands that run a child.
#[derive(Debug, Args)]
pub(crate) struct JobArguments {
    /// How long the lock outlives this host if it dies; lockkit renews it after a third of that. By
    /// default what the URL says, or else 30s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Time from SIGTERM to SIGKILL when the lock is lost or can't be renewed. By default 5s, or a
    /// third of the lease if that is less
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Stop the command after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_run: Option<Duration>,
    /// The label that others see, instead of host, process and command
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Write one line of JSON about the end to this file, so that no exit code is ambiguous
    #[arg(long, value_name = "FILE")]
    pub(crate) status_file: Option<PathBuf>,
    /// The command, for /bin/sh
    #[arg(long, short, value_name = "SHELL-COMMAND", conflicts_with = "command")]
    pub(crate) command_line: Option<OsString>,
    /// The command and its arguments
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "command_line"
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ElectArguments {
    /// The election: 1 to 255 bytes, less the namespace
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) job: JobArguments,
}

/// K of N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) limit: u32,
}

impl std::str::FromStr for Permits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(count, limit)| {
            Some(Self { count: count.parse().ok()?, limit: limit.parse().ok()? })
        });
        match parsed {
            Some(permits) if (1..=permits.limit).contains(&permits.count) => Ok(permits),
            _ => Err("write K/N, such as 1/4, with K from 1 to N".to_owned()),
        }
    }
}
