//! The work of the processes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ear::Ear;

/// The numbers of processes, tasks and locks, and the times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Processes that take locks.
    pub processes: u32,
    /// Tasks of each process.
    pub tasks: u32,
    /// Mutexes that all tasks want.
    pub mutexes: u32,
    /// Read/write locks that all tasks want. None if the store has none.
    pub rw_locks: u32,
    /// Semaphores that all tasks want. None if the store has none.
    pub semaphores: u32,
    /// More mutexes. Two tasks rarely want one of them at the same time.
    pub wide: u32,
    /// Leases to choose from. A lease is never shorter than the store offers.
    pub ttls: Vec<Duration>,
    /// The longest intended hold of a lock.
    pub longest_hold: Duration,
    /// A task rests for up to this long between two claims.
    pub longest_rest: Duration,
    /// The prefix of each name. No other run on the same store uses it.
    pub prefix: String,
    /// The way in which holders get the loss signal. The checker must catch all ways except
    /// [`Ear::Sound`].
    #[serde(default)]
    pub ear: Ear,
}

impl Workload {
    /// A few names that all tasks want, and leases of 0.6 to 2 seconds.
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
