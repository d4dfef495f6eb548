//! x
pub mod proxy;
