//! The contract, C1 to C14, on every store that is compiled in.

#[cfg(feature = "file")]
#[path = "support/file.rs"]
mod file;
#[cfg(feature = "mysql")]
#[path = "support/mysql.rs"]
mod mysql;
#[cfg(feature = "redis")]
#[path = "support/redis.rs"]
mod redis;
#[cfg(feature = "redis")]
#[path = "support/redis_topology.rs"]
mod redis_topology;
#[cfg(feature = "zk")]
#[path = "support/zookeeper.rs"]
mod zookeeper;

use std::{error::Error, process::ExitCode, sync::Arc};

use lockkit::Need;
use lockkit_conformance::{
    Store,
    stores::{MemoryStore, QuorumStore},
};

/// A store, and whether it may be stopped and restarted: some cases need that.
type Found = (Arc<dyn Store>, bool);

/// Most of a case is waiting. More would be quicker, and make each other late: the contract's time bounds are checked here.
const LANES: usize = 3;

fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    if let Some(outcome) = lockkit_conformance::in_lanes(LANES)? {
        return Ok(outcome);
    }
    let memory: Found = (Arc::new(MemoryStore::new()), true);
    // A majority of three has the same code, and its own storms among the tests of the core.
    let quorums = [(5, Need::Majority), (2, Need::All)]
        .map(|(members, need)| -> Found { (Arc::new(QuorumStore::new(members, need)), true) });
    let found = [vec![memory], quorums.to_vec(), file(), mysql()?, redis()?, zookeeper()?].concat();
    let is_complete = cfg!(all(feature = "file", feature = "mysql", feature = "redis", feature = "zk"))
        && found.iter().all(|(_, is_ours)| *is_ours);
    let stores = found.into_iter().map(|(store, _)| store);
    Ok(if is_complete {
        lockkit_conformance::main_covering_all(stores)
    } else {
        lockkit_conformance::main(stores)
    })
}

#[cfg(feature = "file")]
fn file() -> Vec<Found> {
    vec![(Arc::new(file::FolderStore), true)]
}

#[cfg(feature = "mysql")]
fn mysql() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    let found = mysql::SqlStore::start()?.into_iter().map(|store| {
        let is_ours = store.is_ours();
        let found: Found = (Arc::new(store), is_ours);
        found
    });
    Ok(found.collect())
}

#[cfg(feature = "redis")]
fn redis() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    let redis = redis::RedisStore::start()?;
    let is_ours = redis.is_ours();
    let mut found: Vec<Found> = vec![(Arc::new(redis), is_ours)];
    match redis::RedisStore::start_valkey()? {
        Some(valkey) => found.push((Arc::new(valkey), true)),
        None => eprintln!("\nWARNING: there is no valkey-server: Valkey is NOT tested\n"),
    }
    for store in redis_topology::TopologyStore::start()? {
        found.push((Arc::new(store), true));
    }
    Ok(found)
}

#[cfg(feature = "zk")]
fn zookeeper() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    let found = zookeeper::ZooKeeperStore::start()?.into_iter().map(|store| {
        let is_ours = store.is_ours();
        let found: Found = (Arc::new(store), is_ours);
        found
    });
    Ok(found.collect())
}

#[cfg(not(feature = "file"))]
fn file() -> Vec<Found> {
    Vec::new()
}

#[cfg(not(feature = "mysql"))]
fn mysql() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    Ok(Vec::new())
}

#[cfg(not(feature = "redis"))]
fn redis() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    Ok(Vec::new())
}

#[cfg(not(feature = "zk"))]
fn zookeeper() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    Ok(Vec::new())
}
