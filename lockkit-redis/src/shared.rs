//! Holds the data that all connections of one store share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64},
};

use crate::{config::Config, waiting::WaiterRegistry};

/// The settings, the waiters, and facts about the connections.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) waiters: Arc<WaiterRegistry>,
    /// How many connections were opened.
    pub(crate) opened: AtomicU64,
    /// The warning that the servers may evict locks was logged.
    pub(crate) warned: AtomicBool,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        let client = format!("{:016x}", client_id());
        Self {
            waiters: Arc::new(WaiterRegistry::new(client, config.is_cluster())),
            config,
            opened: AtomicU64::new(0),
            warned: AtomicBool::new(false),
        }
    }
}

/// An id that tells the clients of one store apart. Two clients with the same id get each other's
/// messages, and ignore them.
fn client_id() -> u64 {
    let owner = lockkit_core::OwnerId::random().to_string();
    owner.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}
