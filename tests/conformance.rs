//! The contract, C1 to C14, on every store that is compiled in.

#[cfg(feature = "redis")]
#[path = "support/redis.rs"]
mod redis;

use std::{error::Error, process::ExitCode, sync::Arc};

use lockkit_conformance::{Store, stores::MemoryStore};

fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    #[cfg(feature = "redis")]
    return Ok(lockkit_conformance::main_covering_all([memory, Arc::new(redis::RedisStore::start()?)]));
    #[cfg(not(feature = "redis"))]
    Ok(lockkit_conformance::main([memory]))
}
