//! Runs the ticks of an apalis worker each minute, on one of all hosts. It needs no database.
//!
//! Start it several times, with the URL of one store:
//! `cargo run --manifest-path examples/apalis/Cargo.toml -- redis://127.0.0.1:6379/`

use std::{env, error::Error, io, process, time::Duration};

use apalis::prelude::{Data, WorkerBuilder};
use apalis_cron::{CronScheduler, Tick};
use cron::Schedule;
use lockkit::{Hold, LockOptions, Once, OnceOutcome, OnceRun};
use tokio::time::sleep;

/// The second 0 of each minute.
const SCHEDULE: &str = "0 * * * * *";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let options = LockOptions::new().with_label(format!("process {}", process::id()));
    let once = locker.once("example/apalis")?.with_options(options)?;
    let worker = WorkerBuilder::new("report")
        .backend(CronScheduler::new(SCHEDULE.parse::<Schedule>()?))
        .data(once)
        .build(tick);
    worker.run().await?;
    Ok(locker.shutdown().await?)
}

/// Runs one tick. Its number is the same on all hosts, however their clocks differ. An error makes
/// the task fail, and layers of apalis may retry it.
async fn tick(tick: Tick, once: Data<Once>) -> Result<(), Box<dyn Error + Send + Sync>> {
    let slot = tick.get_timestamp();
    match once.run(slot, |hold, earlier| report(slot, hold, earlier)).await? {
        OnceOutcome::Ran { .. } => println!("tick {slot}: done here"),
        OnceOutcome::Failed { error, .. } => return Err(error.into()),
        OnceOutcome::Unrecorded { error, .. } => println!("tick {slot}: not recorded: {error}"),
        OnceOutcome::Done(run) => println!("tick {slot}: done by {:?}", run.label),
        OnceOutcome::Passed(run) => println!("tick {slot}: behind tick {}", run.slot),
        OnceOutcome::Busy(_) => println!("tick {slot}: another host runs it"),
    }
    Ok(())
}

/// The job. If a host dies in it, the next host gets its run as `earlier`.
async fn report(slot: u64, hold: Hold, earlier: Option<OnceRun>) -> io::Result<()> {
    if let Some(run) = earlier {
        println!("{:?} began tick {} and did not finish it", run.label, run.slot);
    }
    sleep(Duration::from_secs(5)).await;
    println!("the report of tick {slot}, under token {}", hold.fencing_token());
    Ok(())
}
