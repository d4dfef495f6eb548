//! A job of tokio-cron-scheduler that runs once over all hosts.
//!
//! Start it several times, with the URL of one store:
//! `cargo run -p lockkit-example-schedulers --bin tokio-cron-scheduler -- redis://127.0.0.1:6379/`

use std::{error::Error, time::SystemTime};

use lockkit_example_schedulers::{PERIOD, SCHEDULE, connect, once, run};
use tokio::signal;
use tokio_cron_scheduler::{Job, JobScheduler};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let locker = connect().await?;
    let once = once(&locker)?;
    let job = Job::new_async(SCHEDULE, move |_, _| {
        let once = once.clone();
        Box::pin(async move {
            if let Err(error) = run(&once, tick()).await {
                eprintln!("the next tick tries again: {error}");
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

/// The number of the tick that has just begun. The scheduler never fires early. A host whose clock
/// is behind finds the tick done.
fn tick() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / PERIOD.as_secs()
}
