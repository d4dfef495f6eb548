//! x
use std::{process::ExitCode, sync::Arc};

fn main() -> ExitCode {
    lockkit_conformance::main([Arc::new(lockkit_conformance::stores::MemoryStore::new()) as _])
}
