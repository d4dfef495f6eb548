//! A nightly job that exactly one of five hosts must run. A lock selects the host, and a note
//! beside the lock records that the job is done.
//!
//! `cargo run --example singleton_job` runs on the embedded memory store, or on the store of its
//! argument, a URL. It needs notes: all stores have them, except `quorum://`.

use std::{
    env,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, SystemTime},
};

use lockkit::{ErrorKind, Locker, Noted, Result};
use tokio::time::sleep;

static RUNS: AtomicU32 = AtomicU32::new(0);

async fn job(night: u128) {
    sleep(Duration::from_millis(50)).await;
    println!("the job of night {night} is done");
    RUNS.fetch_add(1, SeqCst);
}

/// The work of each host when its clock says that it is time. No clock is exact.
async fn host(name: &str, locker: &Locker, night: u128) -> Result<bool> {
    let mutex = locker.mutex("example/nightly")?;
    // If another host does the job, this host need not wait.
    let Some(guard) = mutex.try_lock().await? else {
        println!("{name}: another host is doing the job");
        return Ok(false);
    };
    // This check needs the lock, because another host may have done the job just before.
    let note = locker.note(mutex.name()).await?;
    if note.text.parse().is_ok_and(|done: u128| done >= night) {
        println!("{name}: another host has done the job");
        guard.release().await?;
        return Ok(false);
    }
    // If the lock is lost, lockkit drops the job at once, because another host may have begun it.
    match guard.run(job(night)).await {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::Lost => return Ok(false),
        Err(error) => return Err(error),
    }
    // The store writes the note only if this host still holds the lock. If a host dies before this,
    // the next host does the job again. A job that must not be done twice also needs the fencing
    // token.
    let noted = guard.write_note(&note.next(night.to_string())).await?;
    assert_eq!(noted, Noted::Written, "the lock was lost after the job");
    println!("{name}: did the job under token {}", guard.fencing_token());
    guard.release().await?;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    // Each run of this example uses its own nights, because the note stays in the store.
    let first = SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_micros();
    for night in [first, first + 1] {
        let at = |name| host(name, &locker, night);
        let (a, b, c, d) =
            tokio::try_join!(at("host 1"), at("host 2"), at("host 3"), at("host 4"))?;
        // The clock of host 5 is behind, so the job is already done.
        let late = host("host 5", &locker, night).await?;
        let did = [a, b, c, d, late].into_iter().filter(|did| *did).count();
        assert_eq!((did, late), (1, false), "exactly one of five");
    }
    assert_eq!(RUNS.load(SeqCst), 2, "once a night");
    println!("two nights on {}: each job ran once", locker.descriptor().name);
    locker.shutdown().await
}
