//! Tests that no part of a lock is left after a failed release, once the release is possible.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use lockkit_core::{
    ErrorKind, Kind, LockName, LockOptions, Locker, OwnerId,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Mode, Wait},
};
use lockkit_file::{Config, FileStore};
use tempfile::TempDir;
use tokio::time::timeout;

/// Each expected event comes within this time. The store tries once a second.
const SOON: Duration = Duration::from_secs(60);

fn store(folder: &Path) -> FileStore {
    FileStore::open(Config::new(folder)).unwrap()
}

fn name() -> LockName {
    LockName::new(Kind::Mutex, "a").unwrap()
}

/// A claim that waits only for a moment. Its gate is occupied, as by a process with a slow disk.
fn claim(store: &FileStore) -> Box<dyn Claim> {
    let op_timeout = Duration::from_secs(6);
    let spec = ClaimSpec::new(name(), OwnerId::random(), Mode::Exclusive, SOON * 4, op_timeout);
    store.claim(spec).unwrap()
}

async fn ask(claim: &mut dyn Claim) -> bool {
    matches!(claim.attempt(Wait::Queue).await.unwrap(), Attempt::Granted(_))
}

fn gate(folder: &Path) -> PathBuf {
    let mut files =
        fs::read_dir(folder.join("names/mutex")).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.extension().is_some_and(|ending| ending == "lock")).unwrap()
}

/// Occupies the gate until the file is closed.
fn stand_in(folder: &Path) -> File {
    let inside = File::options().read(true).write(true).open(gate(folder)).unwrap();
    inside.lock().unwrap();
    inside
}

/// The ttl is so long that no task waits for the end of a lease.
fn locker(folder: &Path) -> Locker {
    let options = LockOptions::new().with_ttl(SOON * 4).with_op_timeout(SOON);
    Locker::new(store(folder)).with_defaults(options).unwrap()
}

async fn assert_free_soon(folder: &Path) {
    let other = locker(folder);
    let guard = other.mutex("a").unwrap().lock_timeout(SOON).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_a_lock_that_could_not_be_released_is_free_once_it_can_be() {
    let folder = TempDir::new().unwrap();
    let ours = store(folder.path());
    let mut claim = claim(&ours);
    assert!(ask(&mut *claim).await);
    let inside = stand_in(folder.path());
    let error = claim.release().await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    // The core has given up the claim.
    drop(claim);
    drop(inside);
    assert_free_soon(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_a_lock_whose_release_failed_for_good_is_free_once_that_is_put_right() {
    let folder = TempDir::new().unwrap();
    let ours = locker(folder.path());
    let guard = ours.mutex("a").unwrap().lock().await.unwrap();
    let gate = gate(folder.path());
    let aside = gate.with_extension("aside");
    fs::rename(&gate, &aside).unwrap();
    fs::create_dir(&gate).unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::WrongType);
    fs::remove_dir(&gate).unwrap();
    fs::rename(&aside, &gate).unwrap();
    assert_free_soon(folder.path()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_a_lock_that_could_not_be_released_is_free_for_the_same_store_at_once() {
    let folder = TempDir::new().unwrap();
    let ours = store(folder.path());
    let mut first = claim(&ours);
    let mut second = claim(&ours);
    assert!(ask(&mut *first).await);
    let inside = stand_in(folder.path());
    first.release().await.unwrap_err();
    drop(first);
    drop(inside);
    assert!(ask(&mut *second).await, "its own debt stands in its way");
    // A cleanup that is already done takes nothing from the next claim.
    assert!(!ask(&mut *claim(&store(folder.path()))).await);
    assert_eq!(ours.inspect(&name()).await.unwrap().holders.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c6_a_waiter_leaves_the_queue_once_the_store_is_back() {
    let folder = TempDir::new().unwrap();
    let ours = store(folder.path());
    let other = store(folder.path());
    let mut holder = claim(&other);
    let mut waiter = claim(&ours);
    assert!(ask(&mut *holder).await && !ask(&mut *waiter).await);
    let inside = stand_in(folder.path());
    waiter.release().await.unwrap_err();
    drop(waiter);
    drop(inside);
    let is_out = async {
        while other.inspect(&name()).await.unwrap().waiters != Some(0) {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, is_out).await.expect("it waits for ever");
    assert_eq!(other.inspect(&name()).await.unwrap().holders.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_a_cleanup_makes_no_folder_again_that_was_removed() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("locks");
    let ours = store(&folder);
    let mut claim = claim(&ours);
    assert!(ask(&mut *claim).await);
    let inside = stand_in(&folder);
    claim.release().await.unwrap_err();
    fs::remove_dir_all(&folder).unwrap();
    drop(claim);
    drop(inside);
    // The end of the store waits for its thread.
    ours.close().await.unwrap();
    assert!(!folder.exists());
}
