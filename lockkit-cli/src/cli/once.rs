//! The arguments of `lockkit once`.

use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};

use super::{
    duration,
    job::{JobArguments, WaitArguments},
};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("which").required(true).args(["every", "cron", "slot"]))]
pub(crate) struct OnceArguments {
    /// The lock: 1 to 255 bytes, less the namespace
    pub(crate) name: String,
    /// One slot in each such time, counted from 1970 by the store's clock
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) every: Option<Duration>,
    /// One slot at each tick of a schedule, such as '0 3 * * *', by the store's clock
    #[arg(long, value_name = "FIELDS")]
    pub(crate) cron: Option<String>,
    /// The time zone of --cron
    #[arg(long, value_name = "ZONE", default_value = "UTC", requires = "cron")]
    pub(crate) zone: String,
    /// The slot with this text, such as a version to deploy
    #[arg(long, value_name = "KEY")]
    pub(crate) slot: Option<String>,
    /// How long before its time a slot begins, for hosts whose clocks are ahead of the store's. By
    /// default a tenth of the time between two slots, and at most 30s
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "slot")]
    pub(crate) early: Option<Duration>,
    /// How long a slot of --slot is remembered
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    pub(crate) keep: Duration,
    /// How to treat a run that failed, or whose host died
    #[arg(long, value_enum, default_value_t)]
    pub(crate) on_fail: OnFail,
    #[command(flatten)]
    pub(crate) wait: WaitArguments,
    #[command(flatten)]
    pub(crate) job: JobArguments,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFail {
    /// The slot stays open: the next host that asks runs it again
    #[default]
    Retry,
    /// The slot is done: no slot is ever begun twice
    Done,
}
