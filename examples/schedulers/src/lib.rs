//! The job of both schedulers: a report, which one of all hosts writes at each tick.

use std::{env, error::Error, io, process, time::Duration};

use lockkit::{Hold, LockOptions, Locker, Once, OnceOutcome, OnceRun};
use tokio::time::sleep;

/// Each two seconds.
pub const SCHEDULE: &str = "*/2 * * * * *";
/// The time between two ticks.
pub const PERIOD: Duration = Duration::from_secs(2);

/// Connects to the store of the first argument. Without one, a single process can try the example.
///
/// # Errors
/// The URL is wrong, or the store can't be reached.
pub async fn connect() -> lockkit::Result<Locker> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    lockkit::connect(&url).await
}

/// The work that runs once at each tick.
///
/// # Errors
/// The name is wrong.
pub fn once(locker: &Locker) -> lockkit::Result<Once> {
    let options = LockOptions::new().with_label(format!("process {}", process::id()));
    locker.once("example/report")?.with_options(options)
}

/// Runs one tick. All hosts give it the same number, however their clocks differ. A host that comes
/// later waits for the one that runs the tick.
///
/// # Errors
/// The store can't be asked, or the report failed. The next tick tries again.
pub async fn run(once: &Once, tick: u64) -> Result<(), Box<dyn Error + Send + Sync>> {
    match once.run(tick, |hold, earlier| report(tick, hold, earlier)).await? {
        OnceOutcome::Ran { .. } => println!("tick {tick}: done here"),
        OnceOutcome::Failed { error, .. } => return Err(error.into()),
        OnceOutcome::Unrecorded { error, .. } => println!("tick {tick}: not recorded: {error}"),
        OnceOutcome::Done(run) => println!("tick {tick}: done by {}", label(&run)),
        OnceOutcome::Passed(run) => println!("tick {tick}: behind tick {}", run.slot),
        OnceOutcome::Busy(_) => println!("tick {tick}: another host runs it"),
    }
    Ok(())
}

/// The report. If a host dies in it, another host takes the tick over, and gets that run as
/// `earlier`.
async fn report(tick: u64, hold: Hold, earlier: Option<OnceRun>) -> io::Result<()> {
    println!("tick {tick}: begins under token {}", hold.fencing_token());
    if let Some(run) = earlier {
        println!("tick {tick}: {} did not finish tick {}", label(&run), run.slot);
    }
    sleep(Duration::from_secs(1)).await;
    Ok(())
}

fn label(run: &OnceRun) -> &str {
    run.label.as_deref().unwrap_or("a host without a label")
}
