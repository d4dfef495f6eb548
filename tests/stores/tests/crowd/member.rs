//! One of the processes: its tasks take the lock again and again, and it records when each task
//! held the lock.

use std::sync::Arc;

use libtest_mimic::Failed;
use lockkit::Locker;
use lockkit_fixture::end_with_parent;
use lockkit_torture::clock::now;
use tokio::{runtime::Builder, task::JoinSet};

pub(crate) const NAME: &str = "shares";

pub(crate) fn run(url: &str, tasks: usize, end: u64) -> Result<(), Failed> {
    end_with_parent();
    Builder::new_current_thread().enable_all().build()?.block_on(async {
        let locker = Arc::new(lockkit::connect(url).await?);
        println!("ready {}", now());
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            running.spawn(take_turns(Arc::clone(&locker), end));
        }
        for turns in running.join_all().await {
            for (token, from, to) in turns? {
                println!("held {token} {from} {to}");
            }
        }
        println!("over");
        locker.shutdown().await?;
        println!("bye");
        Ok(())
    })
}

/// The token of each turn, and the time for which the task certainly held the lock.
async fn take_turns(locker: Arc<Locker>, end: u64) -> Result<Vec<(u64, u64, u64)>, lockkit::Error> {
    let mutex = locker.mutex(NAME)?;
    let mut turns = Vec::new();
    while now() < end {
        let guard = mutex.lock().await?;
        let from = now();
        tokio::task::yield_now().await;
        turns.push((guard.fencing_token().get(), from, now()));
        guard.release().await?;
    }
    Ok(turns)
}
