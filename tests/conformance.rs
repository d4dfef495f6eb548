//! The contract, C1 to C14, on every store that is compiled in.

#[cfg(feature = "redis")]
#[path = "support/redis.rs"]
mod redis;

use std::{error::Error, process::ExitCode, sync::Arc};

use lockkit_conformance::{Store, stores::MemoryStore};

#[cfg(feature = "redis")]
fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let redis = redis::RedisStore::start()?;
    // Some cases are for a server that may be stopped.
    let all = redis.is_ours();
    let stores: [Arc<dyn Store>; 2] = [Arc::new(MemoryStore::new()), Arc::new(redis)];
    Ok(if all { lockkit_conformance::main_covering_all(stores) } else { lockkit_conformance::main(stores) })
}

#[cfg(not(feature = "redis"))]
fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    Ok(lockkit_conformance::main([memory]))
}
