//! What the processes do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ear::Ear;

/// How many of whom want what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Processes that take locks.
    pub processes: u32,
    /// Tasks of each.
    pub tasks: u32,
    /// Mutexes that all want.
    pub mutexes: u32,
    /// Read/write locks that all want. None where the store has none.
    pub rw_locks: u32,
    /// Semaphores that all want. None where the store has none.
    pub semaphores: u32,
    /// Further mutexes, that hardly two want at a time.
    pub wide: u32,
    /// Leases to choose from, each no shorter than what the store can give.
    pub ttls: Vec<Duration>,
    /// The longest time for which a lock is held on purpose.
    pub longest_hold: Duration,
    /// A task rests for up to so long between two claims.
    pub longest_rest: Duration,
    /// In the first part of each name, and in no other run on the same store.
    pub prefix: String,
    /// How losses are told: anything but [`Ear::Sound`] is there to be caught by the checker.
    #[serde(default)]
    pub ear: Ear,
}

impl Workload {
    /// Few names that all want, and leases of a second or two.
    #[must_use]
    pub fn new(processes: u32, tasks: u32) -> Self {
        Self {
            processes,
            tasks,
            mutexes: 2,
            rw_locks: 1,
            semaphores: 1,
            wide: 16,
            ttls: vec![Duration::from_millis(600), Duration::from_secs(1), Duration::from_secs(2)],
            longest_hold: Duration::from_millis(40),
            longest_rest: Duration::from_millis(20),
            prefix: "torture".to_owned(),
            ear: Ear::default(),
        }
    }
}
