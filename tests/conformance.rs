//! The contract, C1 to C14, on every store that is compiled in.

#[cfg(feature = "redis")]
#[path = "support/redis.rs"]
mod redis;
#[cfg(feature = "zk")]
#[path = "support/zookeeper.rs"]
mod zookeeper;

use std::{error::Error, process::ExitCode, sync::Arc};

use lockkit_conformance::{Store, stores::MemoryStore};

fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let mut stores: Vec<Arc<dyn Store>> = vec![Arc::new(MemoryStore::new())];
    // Some cases are for a server that may be stopped.

    let mut all = cfg!(feature = "redis");
    #[cfg(feature = "redis")]
    {
        let redis = redis::RedisStore::start()?;
        all &= redis.is_ours();
        stores.push(Arc::new(redis));
    }
    #[cfg(feature = "zk")]
    for zookeeper in zookeeper::ZooKeeperStore::start()? {
        all &= zookeeper.is_ours();
        stores.push(Arc::new(zookeeper));
    }
    Ok(if all { lockkit_conformance::main_covering_all(stores) } else { lockkit_conformance::main(stores) })
}
