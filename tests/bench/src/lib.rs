#![doc = include_str!("../README.md")]

mod address;
mod children;
mod cli;
mod clock;
mod error;
mod family;
mod floor;
mod host;
mod options;
mod peer;
mod plan;
mod progress;
pub mod report;
mod run;
mod sample;
mod scenario;
mod server;
mod target;
mod usage;
mod worker;

pub use self::{
    children::WorkerCommand,
    cli::{command_line, command_line_from},
    error::{Error, Result},
    options::Options,
    peer::Peer,
    run::{Progress, run},
    target::Address,
    worker::worker,
};
