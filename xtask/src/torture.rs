//! Starts servers, and tortures all stores that are available on this machine.

use anyhow::Result;
use clap::Args;

use crate::{
    install, mysql,
    run::{cargo, step},
    server, valkey,
};

/// The test program that starts the servers, with the features of all tests.
const PROGRAM: [&str; 7] =
    ["test", "--workspace", "--all-features", "--test", "torture", "--", "tiers"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Continues for this many hours (default: each store has one round of half a minute)
    #[arg(long)]
    hours: Option<f64>,
    /// The seed of all random choices (default: random, and printed)
    #[arg(long)]
    seed: Option<u64>,
    /// Tests only this store, such as redis-sentinel; repeat this option for more
    #[arg(long = "store", value_name = "NAME")]
    stores: Vec<String>,
    /// More arguments for the program: `cargo xtask torture -- --fault kill-holder --lanes 3`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Installs missing servers, starts servers, and runs the second tier. With `--hours` it runs the
/// third tier.
///
/// # Errors
/// A server is missing, a promise was broken, or a fault could not be caused.
pub(crate) fn run(options: &Options) -> Result<()> {
    install::servers(server::ALL)?;
    mysql::offer_to_tests()?.warn();
    valkey::offer();
    let mut command = cargo(&PROGRAM);
    for (option, value) in [
        ("--hours", options.hours.map(|hours| hours.to_string())),
        ("--seed", options.seed.map(|seed| seed.to_string())),
    ] {
        command.args(value.into_iter().flat_map(|value| [option.to_owned(), value]));
    }
    command.args(options.stores.iter().flat_map(|store| ["--store", store]));
    command.args(&options.arguments);
    step("torture", &mut command)
}
