//! The suite is fair to stores that differ from the memory store: one that gives no short leases, one whose claims live
//! on a session, and one in which attempts wait.

#[path = "../support/mod.rs"]
mod support;

use std::{process::ExitCode, sync::Arc};

use lockkit_conformance::Store;

use self::support::{blocking::BlockingStore, min_ttl::MinTtlStore, session::SessionStore};

fn main() -> ExitCode {
    let stores: [Arc<dyn Store>; 3] = [
        Arc::new(MinTtlStore { refuses: true }),
        Arc::new(SessionStore(None)),
        Arc::new(BlockingStore(None)),
    ];
    lockkit_conformance::main_on_one_lock(stores)
}
