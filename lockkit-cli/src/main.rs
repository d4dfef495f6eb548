//! `lockkit`: locks on the command line.
//!
//! * [`cli`] is the command line that a user types.
//! * [`commands`] has one file for each command.
//! * [`job`] runs a child that can't outlive the lock that it runs under.
//! * [`store`] finds the store and never shows its password.
//! * [`exit`] has the exit codes and their meaning.

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
