#![doc = include_str!("../README.md")]

mod error;
mod floor;
mod host;
pub mod report;
mod server;

pub use self::error::{Error, Result};
