//! The command line that a user types.

mod job;
mod look;
mod once;
mod text;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    job::{ElectArguments, JobArguments, Permits, RunArguments, WaitArguments},
    look::{
        BenchArguments, LookArguments, NamesArguments, ShowArguments, UnlockArguments,
        WatchArguments,
    },
    once::{OnFail, OnceArguments},
    text::{check_command, told},
};

/// Runs commands under locks that all of your hosts share, and shows who holds them.
///
/// The lock is in a store that you have: Redis, MySQL, ZooKeeper, or (--local) this host's file
/// system. A command that runs under a lock is stopped before another one can have the lock.
#[derive(Debug, Parser)]
#[command(name = "lockkit", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArguments,
    #[command(flatten)]
    pub(crate) output: OutputArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  export LOCKKIT_URL=redis://127.0.0.1:6379/
  lockkit run nightly -n ./backup.sh
  lockkit run nightly -w 5m -c 'make report | mail ops'
  lockkit run nightly sleep infinity                    hold a lock until Ctrl-C
  lockkit once report --cron '0 3 * * *' ./report.sh
  lockkit show nightly --exit-code                      0 if somebody holds it, 1 if not

Exit codes of `run`, `once` and `elect`: the command's own; 75 busy; 123 the lock was lost or asked for; 124 --max-run has
passed; 125 lockkit failed; 126 the command can't be executed; 127 there is no such command.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command while it holds a lock
    Run(Box<RunArguments>),
    /// Runs a command once for each time slot, on whichever host comes first
    Once(Box<OnceArguments>),
    /// Runs a command whenever this host leads
    Elect(Box<ElectArguments>),
    /// Lists the names in use
    Ls(NamesArguments),
    /// Shows who holds a lock, and who waits for it
    Show(ShowArguments),
    /// Shows each change of a lock's holders as it happens
    Watch(WatchArguments),
    /// Shows the past runs under a lock
    History(LookArguments),
    /// Takes a lock from its holder: asks its job to stop, and frees the lock only after that
    Unlock(UnlockArguments),
    /// Checks what the locks of this store really promise, and says what to change
    Doctor,
    /// Measures locks on this store
    Bench(BenchArguments),
    /// Prints completions for a shell
    Completions { shell: clap_complete::Shell },
    /// Prints the manual page
    Man,
    /// Becomes the command, in a process group of its own that dies with lockkit
    #[command(hide = true, name = "__launch")]
    Launch(LaunchArguments),
    /// Kills the job of a lockkit that fails to do it
    #[command(hide = true, name = "__watchdog")]
    Watchdog(WatchdogArguments),
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArguments {
    /// The store: redis://…, mysql://…, zk://…, or file:///… Every user of this host can see
    /// command lines. So give a URL with a password in the variable LOCKKIT_URL, or in the file
    /// that LOCKKIT_URL_FILE names [env: LOCKKIT_URL]
    #[arg(long, global = true)]
    pub(crate) url: Option<String>,
    /// A file whose first line is the URL [env: LOCKKIT_URL_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) url_file: Option<PathBuf>,
    /// Locks of this host alone, in its file system
    #[arg(long, global = true)]
    pub(crate) local: bool,
    /// A prefix of each name: lock NAME is NAMESPACE/NAME in the store
    #[arg(long, global = true, env = "LOCKKIT_NAMESPACE")]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArguments {
    /// The format: text for people, json for programs
    #[arg(long, global = true, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Report more on standard error; twice: also lockkit's own log
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Report only errors on standard error
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// The arguments of the launcher; see [`crate::job`].
#[derive(Debug, Args)]
pub(crate) struct LaunchArguments {
    /// The process that started it
    #[arg(long)]
    pub(crate) parent: i32,
    /// The parent's descriptor for the message about why the command can't be executed
    #[arg(long)]
    pub(crate) report: i32,
    /// Take the terminal for the command
    #[arg(long)]
    pub(crate) terminal: bool,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// The arguments of the watchdog at its start; see [`crate::job`].
#[derive(Debug, Args)]
pub(crate) struct WatchdogArguments {
    /// The process that started it
    #[arg(long)]
    pub(crate) parent: i32,
    /// The mark in the environment of the job's processes
    #[arg(long)]
    pub(crate) mark: String,
    /// Children of the parent that are not of the job
    #[arg(long)]
    pub(crate) spare: Vec<i32>,
    /// Other processes may become children of the parent
    #[arg(long)]
    pub(crate) adopts_strangers: bool,
    /// The folder that is removed with the parent
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
}

/// A plain number is in seconds, as flock(1) has it.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds)
            .map_err(|error| format!("{error}; write 30s, 5m or 1h30m"));
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 30s, 5m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_plain_number_is_in_seconds() {
        assert_eq!(duration("5"), Ok(Duration::from_secs(5)));
        assert_eq!(duration("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["-1", "NaN", "inf", "1e99", "5 parsecs", ""] {
            duration(wrong).unwrap_err();
        }
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let cli = Cli::try_parse_from([
            "lockkit", "run", "-n", "nightly", "./job.sh", "-n", "--url", "x",
        ])
        .unwrap();
        let Command::Run(run) = cli.command else { panic!("{cli:?}") };
        assert!(run.wait.nonblock);
        assert_eq!(run.job.command, ["./job.sh", "-n", "--url", "x"]);
        assert_ne!(cli.store.url.as_deref(), Some("x"));
    }
}
