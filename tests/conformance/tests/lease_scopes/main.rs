//! Runs the suite on stores that differ from the memory store. One gives no short leases, in one
//! the claims live on a session, and in one attempts wait.

#[path = "../support/mod.rs"]
mod support;

use std::{process::ExitCode, sync::Arc};

use lockkit_conformance::Store;

use self::support::{blocking::blocking, min_ttl::min_ttl, session::SessionStore};

fn main() -> ExitCode {
    let stores: [Arc<dyn Store>; 3] =
        [Arc::new(min_ttl(true)), Arc::new(SessionStore(None)), Arc::new(blocking(None))];
    lockkit_conformance::main_on_one_lock(stores)
}
