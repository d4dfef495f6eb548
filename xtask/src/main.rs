//! The project's own commands, run as `cargo xtask <command>`.

mod api;
mod bench;
mod book;
mod ci;
mod compose;
mod deny;
mod docs;
mod examples;
mod files;
mod folder;
mod install;
mod length;
mod members;
mod mysql;
mod package;
mod policy;
#[cfg(test)]
mod quotes;
mod run;
mod server;
mod test;
mod tool;
mod torture;
mod up;
mod valkey;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, tests and serves lockkit.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Installs missing servers (on Debian, as root) and runs the tests
    Test {
        /// Runs all tests, including topologies of many servers, storms, mutants and models. Use
        /// this before you submit a change
        #[arg(long, conflicts_with = "stress")]
        all: bool,
        /// Runs the everyday tests this many times, on a busy machine and on servers that stall
        #[arg(long, value_name = "TIMES")]
        stress: Option<u32>,
        /// Arguments for `cargo test`: `cargo xtask test -- c2_`
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Runs every check of a submission: format, lints, docs, dependencies, examples, all tests
    Ci,
    /// Packs every published crate, builds each from its package alone, and checks metadata and
    /// files
    Package {
        /// Skips the builds, which take minutes, as `cargo xtask ci` does
        #[arg(long)]
        no_verify: bool,
    },
    /// Compares the public interface of each library with docs/api
    Api {
        /// Writes docs/api again
        #[arg(long)]
        bless: bool,
    },
    /// Checks the users' servers in compose/, and tries each URL of native.sh
    Compose,
    /// Checks the documents: links, names of tests, plain English, the page of errors, and whether
    /// the READMEs of two languages agree
    Docs {
        /// Writes docs/errors.md from the code
        #[arg(long)]
        bless: bool,
    },
    /// Starts servers, measures all stores, and writes report.html and other files to target/bench
    Bench(bench::Options),
    /// Starts servers, runs random work with random faults on all stores, and checks every step
    Torture(torture::Options),
    /// Serves a store on 127.0.0.1 until Ctrl-C, for experiments
    Up { store: up::Store },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Test { stress: Some(times), arguments, .. } => test::stress(times, &arguments),
        Command::Test { all: true, arguments, .. } => test::run(test::Tier::Thorough, &arguments),
        Command::Test { arguments, .. } => test::run(test::Tier::Everyday, &arguments),
        Command::Ci => ci::run(),
        Command::Package { no_verify } => package::run(!no_verify),
        Command::Api { bless: true } => api::run(api::Purpose::Bless),
        Command::Api { bless: false } => api::run(api::Purpose::Compare),
        Command::Compose => compose::check(),
        Command::Docs { bless } => docs::run(bless),
        Command::Bench(options) => bench::run(&options),
        Command::Torture(options) => torture::run(&options),
        Command::Up { store } => up::run(store),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
