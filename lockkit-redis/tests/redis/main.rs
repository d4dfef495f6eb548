//! Tests the Redis backend against a real server, below the core's driver.

mod batch;
mod crowd;
mod demoted;
mod diagnosis;
mod foreign;
mod format;
mod full;
mod grant;
mod late;
mod locker;
mod loss;
mod names;
mod note;
mod own_client;
mod proof;
mod proxy;
mod queue;
mod raise;
mod refusal;
mod restart;
mod runtimes;
#[path = "../../src/scripts.rs"]
mod scripts;
mod strategy;
mod stuck;
mod support;
mod token;
mod transfer;
mod traps;
mod wake;
