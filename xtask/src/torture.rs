//! Tortures all stores that can be had here, on servers of our own.

use anyhow::Result;
use clap::Args;

use crate::{
    install, mysql,
    run::{cargo, step},
    server, valkey,
};

/// The test program that knows the servers, with the features that all tests are built with.
const PROGRAM: [&str; 6] = ["test", "--all-features", "--test", "torture", "--", "tiers"];

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Goes on until so much time has passed; else each store has one round of half a minute
    #[arg(long)]
    hours: Option<f64>,
    /// All that is left to chance follows from it; else it is drawn, and printed
    #[arg(long)]
    seed: Option<u64>,
    /// Only this store, such as redis-sentinel; repeat it for more
    #[arg(long = "store", value_name = "NAME")]
    stores: Vec<String>,
    /// More for the program: `cargo xtask torture -- --fault kill-holder --lanes 3`
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Installs what is missing, starts servers, and runs the second tier or, with `--hours`, the
/// third.
///
/// # Errors
/// A server is missing, a promise was broken, or something could not be done.
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
