//! The Redis backend against a real server, below the core's driver.

mod fence;
mod foreign;
mod grant;
mod late;
mod locker;
mod loss;
mod proof;
mod proxy;
mod queue;
mod refusal;
mod stuck;
mod support;
mod traps;
mod wake;
