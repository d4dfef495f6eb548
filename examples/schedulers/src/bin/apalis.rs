//! A worker of apalis whose ticks run once over all hosts. It needs no database.
//!
//! Start it several times, with the URL of one store:
//! `cargo run -p lockkit-example-schedulers --bin apalis -- redis://127.0.0.1:6379/`

use std::error::Error;

use apalis::prelude::{Data, WorkerBuilder};
use apalis_cron::{CronScheduler, Tick};
use cron::Schedule;
use lockkit::Once;
use lockkit_example_schedulers::{SCHEDULE, connect, once, run};

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let locker = connect().await?;
    let worker = WorkerBuilder::new("report")
        .backend(CronScheduler::new(SCHEDULE.parse::<Schedule>()?))
        .data(once(&locker)?)
        .build(tick);
    worker.run().await?;
    Ok(locker.shutdown().await?)
}

/// The number of a tick is its time in seconds. An error makes the task fail, and layers of apalis
/// may retry it.
async fn tick(tick: Tick, once: Data<Once>) -> Result<(), Failure> {
    run(&once, tick.get_timestamp()).await
}
