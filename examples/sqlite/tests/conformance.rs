//! Checks the contract, C1 to C14, on a SQLite file.

mod support;

use std::{process::ExitCode, sync::Arc};

use lockkit_conformance::Store;

fn main() -> ExitCode {
    let store: Arc<dyn Store> = Arc::new(support::SqliteStore);
    lockkit_conformance::main([store])
}
