//! The contract, C1 to C14, on a SQLite file.

mod support;

use std::{io, process::ExitCode, sync::Arc};

use lockkit_conformance::Store;

/// Most of a case is waiting. More would be quicker, and make each other late.
const LANES: usize = 4;

fn main() -> io::Result<ExitCode> {
    if let Some(outcome) = lockkit_conformance::in_lanes(LANES)? {
        return Ok(outcome);
    }
    let store: Arc<dyn Store> = Arc::new(support::SqliteStore);
    Ok(lockkit_conformance::main([store]))
}
