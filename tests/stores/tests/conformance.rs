//! The contract, C1 to C14, on every store.

#[path = "support/file.rs"]
mod file;
#[path = "support/mysql.rs"]
mod mysql;
#[path = "support/redis.rs"]
mod redis;
#[path = "support/shared.rs"]
mod shared;
#[path = "support/sql_leaks.rs"]
mod sql_leaks;
#[path = "support/zookeeper.rs"]
mod zookeeper;

use std::{env, process::ExitCode, sync::Arc};

use lockkit::quorum::Need;
use lockkit_conformance::{
    BoxError, Locks, Store,
    stores::{MemoryStore, QuorumStore},
};

/// `cargo xtask test` sets this to run each case on only one lock of a store.
const ONE_LOCK: &str = "LOCKKIT_TEST_ONE_LOCK";

/// A store, and whether it may be stopped and restarted, which some cases need.
type Found = (Arc<dyn Store>, bool);

fn main() -> Result<ExitCode, BoxError> {
    let memory: Found = (Arc::new(MemoryStore::new()), true);
    // A majority of three uses the same code, and the core's tests have storms for it.
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

fn mysql() -> Result<Vec<Found>, BoxError> {
    Ok(found(mysql::SqlStore::start()?, mysql::SqlStore::is_ours))
}

fn redis() -> Result<Vec<Found>, BoxError> {
    let mut stores = vec![redis::RedisStore::start()?];
    match redis::RedisStore::start_valkey()? {
        Some(valkey) => stores.push(valkey),
        None => eprintln!("\nWARNING: there is no valkey-server: Valkey is NOT tested\n"),
    }
    stores.extend(redis::RedisStore::start_topologies()?);
    Ok(found(stores, redis::RedisStore::is_ours))
}

fn zookeeper() -> Result<Vec<Found>, BoxError> {
    Ok(found(zookeeper::ZooKeeperStore::start()?, zookeeper::ZooKeeperStore::is_ours))
}

fn found<S: Store>(stores: impl IntoIterator<Item = S>, is_ours: fn(&S) -> bool) -> Vec<Found> {
    let found = |store| {
        let is_ours = is_ours(&store);
        let found: Found = (Arc::new(store), is_ours);
        found
    };
    stores.into_iter().map(found).collect()
}
