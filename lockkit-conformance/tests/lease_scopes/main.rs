//! The suite is fair to stores whose leases differ from the memory store's: one that gives no short ones, and one
//! whose claims live on a session.

mod min_ttl;
mod server;
mod session;

use std::{process::ExitCode, sync::Arc};

use lockkit_conformance::Store;

fn main() -> ExitCode {
    let stores: [Arc<dyn Store>; 2] = [Arc::new(min_ttl::MinTtlStore), Arc::new(session::SessionStore)];
    lockkit_conformance::main(stores)
}
