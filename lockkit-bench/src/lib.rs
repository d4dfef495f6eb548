#![doc = include_str!("../README.md")]

mod error;
pub mod report;

pub use self::error::{Error, Result};
