//! A nightly job on hosts whose clocks differ: one host runs it, and the others find it done. If
//! that host dies, the next host takes over and hears of it.
//!
//! `cargo run --example once` runs on the embedded memory store, or on the store of its argument, a
//! URL. It needs notes: all stores have them, except `quorum://`.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::{env, future::pending, io, time::Duration, time::SystemTime};

use lockkit::{Hold, LockOptions, Locker, Once, OnceOutcome, OnceRun, Result};
use tokio::{sync::oneshot, time::sleep};

static RUNS: AtomicU32 = AtomicU32::new(0);

/// The job. `earlier` is a run that began this night, and that may have done a part of it.
async fn job(night: u64, hold: Hold, earlier: Option<OnceRun>) -> io::Result<bool> {
    let is_repeated = earlier.is_some_and(|run| run.slot == night);
    sleep(Duration::from_millis(50)).await;
    println!("night {night}: done under token {}, again: {is_repeated}", hold.fencing_token());
    RUNS.fetch_add(1, SeqCst);
    Ok(is_repeated)
}

fn nightly(name: &str, locker: &Locker) -> Result<Once> {
    locker.once("example/nightly")?.with_options(LockOptions::new().with_label(name))
}

/// The work of each host when its clock says that it is time. Returns whether the host ran the job.
async fn host(name: &str, locker: &Locker, night: u64) -> Result<bool> {
    let once = nightly(name, locker)?;
    match once.run(night, |hold, earlier| job(night, hold, earlier)).await? {
        OnceOutcome::Ran { output: is_repeated, .. } => {
            println!("{name}: ran night {night}, repeated: {is_repeated}");
            Ok(true)
        }
        OnceOutcome::Done(run) => {
            println!("{name}: {} has run night {night}", run.label.unwrap_or_default());
            Ok(false)
        }
        // A host with a bound on waiting may find the job busy, and a late host an older night.
        other => panic!("{name}, night {night}: {other:?}"),
    }
}

/// A host that ends in the middle of the job. After a real crash, its lock is free when the lease
/// ends.
async fn dies(name: &str, locker: &Locker, night: u64) -> Result<()> {
    let once = nightly(name, locker)?;
    let (begins, begun) = oneshot::channel();
    let run = once.run(night, |_, _| async move {
        begins.send(()).expect("the host waits for this");
        pending::<io::Result<()>>().await
    });
    tokio::select! {
        ended = run => panic!("{name}: {:?}", ended?),
        begun = begun => begun.expect("the job begins"),
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    // Each run of this example has its own nights, because the record stays in the store.
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock after 1970").as_millis();
    let night = u64::try_from(now).expect("a clock before the year 500 million");
    let at = |name, night| host(name, &locker, night);
    let (a, b, c) =
        tokio::try_join!(at("host 1", night), at("host 2", night), at("host 3", night))?;
    // The clock of host 4 is behind, so it asks after the job is done.
    let late = at("host 4", night).await?;
    let ran = [a, b, c].into_iter().filter(|ran| *ran).count();
    assert_eq!((ran, late), (1, false), "exactly one of four");
    dies("host 1", &locker, night + 1).await?;
    assert!(at("host 2", night + 1).await?, "another host takes over");
    assert_eq!(RUNS.load(SeqCst), 2, "once a night");
    println!("two nights on {}: each job is done once", locker.descriptor().name);
    locker.shutdown().await
}
