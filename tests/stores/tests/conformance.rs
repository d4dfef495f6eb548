//! The contract, C1 to C14, on every store.

#[path = "support/file.rs"]
mod file;
#[path = "support/mysql.rs"]
mod mysql;
#[path = "support/redis.rs"]
mod redis;
#[path = "support/shared.rs"]
mod shared;
#[path = "support/zookeeper.rs"]
mod zookeeper;

use std::{env, error::Error, process::ExitCode, sync::Arc};

use lockkit::Need;
use lockkit_conformance::{
    Locks, Store,
    stores::{MemoryStore, QuorumStore},
};

/// Set by `cargo xtask test` where each case is to be run on one lock of a store only.
const ONE_LOCK: &str = "LOCKKIT_TEST_ONE_LOCK";

/// A store, and whether it may be stopped and restarted: some cases need that.
type Found = (Arc<dyn Store>, bool);

fn main() -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let memory: Found = (Arc::new(MemoryStore::new()), true);
    // A majority of three has the same code, and its own storms among the tests of the core.
    let quorums = [(5, Need::Majority), (2, Need::All)]
        .map(|(members, need)| -> Found { (Arc::new(QuorumStore::new(members, need)), true) });
    let found = [vec![memory], quorums.to_vec(), file(), mysql()?, redis()?, zookeeper()?].concat();
    let is_complete = found.iter().all(|(_, is_ours)| *is_ours);
    let stores = found.into_iter().map(|(store, _)| store);
    Ok(if is_complete {
        let locks = if env::var_os(ONE_LOCK).is_some() { Locks::InTurn } else { Locks::All };
        lockkit_conformance::main_covering_all(stores, locks)
    } else {
        lockkit_conformance::main(stores)
    })
}

fn file() -> Vec<Found> {
    vec![(Arc::new(file::FolderStore), true)]
}

fn mysql() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    let found = mysql::SqlStore::start()?.into_iter().map(|store| {
        let is_ours = store.is_ours();
        let found: Found = (Arc::new(store), is_ours);
        found
    });
    Ok(found.collect())
}

fn redis() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    let redis = redis::RedisStore::start()?;
    let is_ours = redis.is_ours();
    let mut found: Vec<Found> = vec![(Arc::new(redis), is_ours)];
    match redis::RedisStore::start_valkey()? {
        Some(valkey) => found.push((Arc::new(valkey), true)),
        None => eprintln!("\nWARNING: there is no valkey-server: Valkey is NOT tested\n"),
    }
    for store in redis::RedisStore::start_topologies()? {
        found.push((Arc::new(store), true));
    }
    Ok(found)
}

fn zookeeper() -> Result<Vec<Found>, Box<dyn Error + Send + Sync>> {
    let found = zookeeper::ZooKeeperStore::start()?.into_iter().map(|store| {
        let is_ours = store.is_ours();
        let found: Found = (Arc::new(store), is_ours);
        found
    });
    Ok(found.collect())
}
