//! The suite is fair to stores whose leases differ from the memory store's: one that gives no short ones, and one
//! whose claims live on a session.

#[path = "../support/mod.rs"]
mod support;

use std::{process::ExitCode, sync::Arc};

use lockkit_conformance::Store;

use self::support::{min_ttl::MinTtlStore, session::SessionStore};

fn main() -> ExitCode {
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MinTtlStore { refuses: true }), Arc::new(SessionStore(None))];
    lockkit_conformance::main_on_one_lock(stores)
}
