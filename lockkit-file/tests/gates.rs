//! Tests that different names have different gates.

use std::{fs::File, path::Path, time::Duration};

use lockkit_core::{LockOptions, Locker};
use lockkit_file::{Config, FileStore};
use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};

/// Each expected event comes within this time, or a test fails. No test waits until it has passed.
const SOON: Duration = Duration::from_secs(60);

fn locker(folder: &Path) -> Locker {
    let options = LockOptions::new().with_ttl(SOON * 4).with_op_timeout(SOON * 2);
    // These tests are about the store itself, so the process's own queue is off.
    let locker =
        Locker::new(FileStore::open(Config::new(folder)).unwrap()).with_process_gate(false);
    locker.with_defaults(options).unwrap()
}

/// The other names would wait if all names had one gate, or if a wait blocked the thread.
#[tokio::test]
async fn c8_a_name_whose_gate_is_stuck_delays_no_other_name() {
    let folder = TempDir::new().unwrap();
    let locker = locker(folder.path());
    locker.mutex("stuck").unwrap().lock().await.unwrap().release().await.unwrap();
    let names = std::fs::read_dir(folder.path().join("names/mutex")).unwrap();
    let mut paths = names.map(|entry| entry.unwrap().path());
    let gate = paths.find(|path| path.extension().is_some_and(|ending| ending == "lock")).unwrap();
    // This acts as a process that was stopped while it changed the record.
    let gate = File::options().write(true).open(gate).unwrap();
    gate.lock().unwrap();
    let mut stuck = JoinSet::new();
    for _ in 0..16 {
        let mutex = locker.mutex("stuck").unwrap();
        stuck.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    let other = locker.mutex("other").unwrap();
    let turns = async {
        for _ in 0..200 {
            other.lock().await.unwrap().release().await.unwrap();
        }
    };
    timeout(SOON, turns).await.expect("the other name waits for the stuck one");
    assert!(stuck.try_join_next().is_none(), "the gate was not stuck");
    gate.unlock().unwrap();
    timeout(SOON, stuck.join_all()).await.expect("nobody went on once the gate was free");
}
