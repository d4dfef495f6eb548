//! `lockkit`: locks on the command line.
//!
//! * [`cli`] is what can be typed.
//! * [`commands`] has one file for each command.
//! * [`job`] runs a child that can't outlive the lock that it runs under.
//! * [`store`] finds the store, without a word about its password.
//! * [`exit`] is what the exit codes mean.

mod asking;
mod boot_time;
mod cli;
mod commands;
mod environment;
mod error;
mod exit;
mod group;
mod history;
mod job;
mod journal;
mod label;
mod output;
mod renewals;
mod reporter;
mod signals;
mod slot;
mod status;
mod store;
mod sweep;
mod table;
mod turn;
mod variables;
mod view;
mod waiting;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main()
}
