//! The tests of a program that uses lockkit. `docs/testing-your-code.md` shows them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use lockkit::{
    Clock, ErrorKind, FencingToken, LockGuard, LockOptions, Locker, LossReason, Memory, Released,
    Renewal,
};
use lockkit_conformance::{Faults, Link as _, faulty::Faulty};
use rusqlite::{Connection, params};
use tokio::time::{advance, sleep};

/// The program under test: it copies files one by one, unless another process does it.
async fn copy_files(locker: &Locker, copied: &Mutex<Vec<u32>>) -> lockkit::Result<bool> {
    let Some(guard) = locker.mutex("copy")?.try_lock().await? else { return Ok(false) };
    let work = async {
        for file in 0..60 {
            sleep(Duration::from_secs(60)).await;
            copied.lock().unwrap().push(file);
        }
    };
    guard.run(work).await?;
    guard.release().await?; // returns an error if the lock was lost
    Ok(true)
}

#[tokio::test]
async fn two_lockers_on_one_store_act_like_two_processes() -> lockkit::Result<()> {
    let store = Memory::new();
    let ours = Locker::new(store.clone());
    let theirs = Locker::new(store.clone());
    let guard = theirs.mutex("copy")?.lock().await?;
    let copied = Mutex::default();
    assert!(!copy_files(&ours, &copied).await?, "the other process does it");
    assert!(copied.lock().unwrap().is_empty());
    guard.release().await?;
    ours.shutdown().await?;
    theirs.shutdown().await?;
    assert!(store.is_empty(), "no lock remains");
    Ok(())
}

/// A store and a locker on tokio's clock. A test can pause this clock.
fn on_tokios_clock() -> (Memory, Locker) {
    let store = Memory::with_clock(Clock::Tokio);
    let locker = Locker::builder(Arc::new(store.clone())).clock(Clock::Tokio).build();
    (store, locker)
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_a_short_lease_during_an_hour_of_work() -> lockkit::Result<()> {
    let (_, locker) = on_tokios_clock();
    let copied = Mutex::default();
    assert!(copy_files(&locker, &copied).await?);
    assert_eq!(copied.lock().unwrap().len(), 60);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_unrenewed_lease_ends() -> lockkit::Result<()> {
    let (_, locker) = on_tokios_clock();
    let options =
        LockOptions::new().with_ttl(Duration::from_secs(10)).with_renewal(Renewal::Manual);
    let mutex = locker.mutex("copy")?.with_options(options)?;
    let paused = mutex.lock().await?;
    advance(Duration::from_secs(11)).await;
    assert!(!paused.is_held());
    assert_eq!(paused.lost().await, LossReason::Expired);
    let next = mutex.try_lock().await?.expect("the lock is free again");
    assert!(next.fencing_token() > paused.fencing_token());
    assert_eq!(paused.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn work_stops_when_an_operator_evicts_the_lock() -> lockkit::Result<()> {
    let (_, locker) = on_tokios_clock();
    let copied = Arc::new(Mutex::default());
    let locker_of_work = locker.clone();
    let list = Arc::clone(&copied);
    let work = tokio::spawn(async move { copy_files(&locker_of_work, &list).await });
    sleep(Duration::from_secs(150)).await;
    let mutex = locker.mutex("copy")?;
    let holder = mutex.inspect().await?.holders.remove(0);
    let token = holder.token.expect("a client of lockkit has a token");
    assert_eq!(mutex.force_release(token).await?, Released::Freed);
    let error = work.await.expect("no panic").expect_err("the lock was lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(*copied.lock().unwrap(), [0, 1], "two minutes of work");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn work_stops_in_time_when_the_store_stops_answering() -> lockkit::Result<()> {
    let store = Faulty::new(Arc::new(Memory::with_clock(Clock::Tokio)));
    let line = store.line();
    let locker = Locker::builder(Arc::new(store)).clock(Clock::Tokio).build();
    let guard = locker.mutex("copy")?.lock().await?;
    line.set(Faults::SILENCE);
    let silent = Clock::Tokio.now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(silent.until(Clock::Tokio.now()) <= LockOptions::new().ttl());
    line.heal();
    Ok(())
}

#[tokio::test]
async fn a_grant_with_a_lost_reply_is_undone() -> lockkit::Result<()> {
    let memory = Memory::new();
    let store = Faulty::new(Arc::new(memory.clone()));
    let line = store.line();
    let options = LockOptions::new().with_op_timeout(Duration::from_millis(50));
    let locker = Locker::new(store).with_defaults(options)?;
    line.set(Faults::LOST_REPLIES);
    let error =
        locker.mutex("copy")?.try_lock().await.expect_err("the outcome of the attempt is unknown");
    assert!(error.is_outcome_unknown() && error.kind() == ErrorKind::Unavailable);
    line.heal();
    locker.shutdown().await?;
    assert!(memory.is_empty(), "lockkit undid the lost grant");
    Ok(())
}

/// The program's own write. It changes nothing if the holder paused for too long.
fn write_stock(db: &Connection, left: i64, token: FencingToken) -> rusqlite::Result<bool> {
    const SQL: &str = "UPDATE stock SET left = ?1, token = ?2 WHERE item = 'lamp' AND token <= ?2";
    let rows = db.execute(SQL, params![left, token.get().cast_signed()])?;
    Ok(rows == 1)
}

#[tokio::test]
async fn a_late_write_changes_nothing() -> Result<(), Box<dyn std::error::Error>> {
    let db = Connection::open_in_memory()?;
    db.execute_batch(
        "CREATE TABLE stock (item TEXT PRIMARY KEY, left INTEGER NOT NULL, token INTEGER NOT NULL);
         INSERT INTO stock VALUES ('lamp', 10, 0)",
    )?;
    let mutex = Locker::memory().mutex("lamp")?;
    let paused = mutex.lock().await?;
    assert_eq!(mutex.force_release(paused.fencing_token()).await?, Released::Freed);
    let present: LockGuard = mutex.lock().await?;
    assert!(write_stock(&db, 9, present.fencing_token())?);
    assert!(!write_stock(&db, 5, paused.fencing_token())?, "the write comes too late");
    let left: i64 = db.query_row("SELECT left FROM stock", [], |row| row.get(0))?;
    assert_eq!(left, 9);
    Ok(())
}
