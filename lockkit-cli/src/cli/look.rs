//! Commands that look at locks, and those of the operator.

use clap::{ArgGroup, Args, ValueEnum};
use lockkit::Kind;

#[derive(Debug, Args)]
pub(crate) struct NamesArguments {
    /// Only names that begin with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
}

#[derive(Debug, Args)]
pub(crate) struct LookArguments {
    /// The lock
    pub(crate) name: String,
    /// Only the lock of this kind; by default all kinds in which the name is used
    #[arg(long, value_enum)]
    pub(crate) kind: Option<KindArgument>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) look: LookArguments,
    /// End with 1 if the lock has no holder
    #[arg(long)]
    pub(crate) exit_code: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArguments {
    #[command(flatten)]
    pub(crate) look: LookArguments,
    /// End when the lock is free
    #[arg(long)]
    pub(crate) until_free: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("whose").required(true).args(["token", "force"]))]
pub(crate) struct UnlockArguments {
    #[command(flatten)]
    pub(crate) look: LookArguments,
    /// Only if the holder has this token
    #[arg(long)]
    pub(crate) token: Option<u64>,
    /// Free it, no matter who holds it
    #[arg(long, requires = "reason")]
    pub(crate) force: bool,
    /// The reason, for the holder and for the log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// How long the holder has to stop its job; it learns of the request within a second, and its
    /// --grace follows
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = super::duration, conflicts_with = "now")]
    pub(crate) wait: std::time::Duration,
    /// Don't ask the holder to stop its job first: the next job may run beside it
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct BenchArguments {
    /// The arguments of lockkit-bench; `lockkit bench --help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<std::ffi::OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArgument {
    Election,
    Mutex,
    Rwlock,
    Semaphore,
}

impl From<KindArgument> for Kind {
    fn from(kind: KindArgument) -> Self {
        match kind {
            KindArgument::Election => Self::Election,
            KindArgument::Mutex => Self::Mutex,
            KindArgument::Rwlock => Self::RwLock,
            KindArgument::Semaphore => Self::Semaphore,
        }
    }
}
