#![doc = include_str!("../README.md")]

pub mod check;
pub mod child;
mod cli;
pub mod clock;
mod commands;
pub mod ear;
mod error;
pub mod history;
mod link;
mod nemesis;
mod register;
pub mod report;
pub mod run;
pub mod sim;
pub mod site;
pub mod soak;
mod worker;
pub mod workload;

pub use self::{
    cli::command_line,
    error::{Error, Result},
    nemesis::Plan,
};
