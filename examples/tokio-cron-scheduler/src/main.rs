//! Runs a job of tokio-cron-scheduler each minute, on one of all hosts.
//!
//! Start it several times, with the URL of one store:
//! `cargo run --manifest-path examples/tokio-cron-scheduler/Cargo.toml -- redis://127.0.0.1:6379/`

use std::{
    env,
    error::Error,
    io, process,
    time::{Duration, SystemTime},
};

use lockkit::{Hold, LockOptions, Once, OnceOutcome, OnceRun};
use tokio::{signal, time::sleep};
use tokio_cron_scheduler::{Job, JobScheduler};

/// The second 0 of each minute.
const SCHEDULE: &str = "0 * * * * *";
const PERIOD: u64 = 60;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let options = LockOptions::new().with_label(format!("process {}", process::id()));
    let once = locker.once("example/cron")?.with_options(options)?;
    let job = Job::new_async(SCHEDULE, move |_, _| {
        let once = once.clone();
        Box::pin(async move {
            if let Err(error) = tick(&once).await {
                eprintln!("the store could not be asked, so the next minute tries: {error}");
            }
        })
    })?;
    let mut scheduler = JobScheduler::new().await?;
    scheduler.add(job).await?;
    scheduler.start().await?;
    signal::ctrl_c().await?;
    scheduler.shutdown().await?;
    Ok(locker.shutdown().await?)
}

/// Runs the minute that has just begun. The scheduler never fires early, and all hosts give a
/// minute the same number. A host whose clock is behind finds the minute done.
async fn tick(once: &Once) -> lockkit::Result<()> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let minute = now.as_secs() / PERIOD;
    match once.run(minute, |hold, earlier| report(minute, hold, earlier)).await? {
        OnceOutcome::Ran { .. } => println!("minute {minute}: done here"),
        OnceOutcome::Failed { error, .. } => println!("minute {minute}: failed: {error}"),
        OnceOutcome::Unrecorded { error, .. } => println!("minute {minute}: not recorded: {error}"),
        OnceOutcome::Done(run) => println!("minute {minute}: done by {:?}", run.label),
        OnceOutcome::Passed(run) => println!("minute {minute}: behind minute {}", run.slot),
        OnceOutcome::Busy(_) => println!("minute {minute}: another host runs it"),
    }
    Ok(())
}

/// The job. If a host dies in it, the next host gets its run as `earlier`.
async fn report(minute: u64, hold: Hold, earlier: Option<OnceRun>) -> io::Result<()> {
    if let Some(run) = earlier {
        println!("{:?} began minute {} and did not finish it", run.label, run.slot);
    }
    sleep(Duration::from_secs(5)).await;
    println!("the report of minute {minute}, under token {}", hold.fencing_token());
    Ok(())
}
