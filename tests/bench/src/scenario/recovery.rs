//! Kills a process that holds the lock, while another process waits for it.

use std::time::{Duration, Instant};

use rand::RngExt as _;
use tokio::{task::JoinSet, time::sleep};

use super::{Turn, lock_error};
use crate::{
    children::unexpected,
    error::{Error, Result},
    report::Metric,
    sample::Sample,
    worker::{Answer, Job, Task},
};

/// The time for the waiter to join the queue.
const BEFORE_THE_KILL: Duration = Duration::from_millis(300);

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let ttl = Duration::from_millis(turn.case.ttl_ms.unwrap_or(2_000).into());
    let url = turn.target.url_with_session(ttl)?;
    let holder = Job { url, task: Task::Hold { name: turn.name.to_owned(), ttl } };
    let mut holder = turn.children.start(holder).await?;
    let ttl = match holder.answer().await? {
        Answer::Holding { ttl } => ttl,
        other => return Err(unexpected(&other)),
    };
    let mutex = turn.target.locker.mutex(turn.name).map_err(lock_error)?;
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let guard = mutex.lock().await.map_err(lock_error)?;
        let granted = Instant::now();
        guard.release().await.map_err(lock_error)?;
        Ok(granted)
    });
    // With a random delay, the kill hits every phase of a lease and its renewals.
    sleep(BEFORE_THE_KILL + rand::rng().random_range(Duration::ZERO..ttl * 2 / 3)).await;
    if !waiting.is_empty() && waiting.try_join_next().is_some() {
        return Err(Error::new("the lock was granted while another process held it"));
    }
    let killed = holder.kill().await?;
    let granted = waiting.join_next().await;
    let granted: Result<Instant> = granted
        .ok_or_else(|| Error::new("the waiting task ended early"))?
        .map_err(|error| Error::of("a task of the benchmark failed", error))?;
    let mut sample = Sample::new()?;
    sample.put(Metric::LeaseMs, ttl.as_secs_f64() * 1_000.0);
    sample.put(
        Metric::RecoveryMs,
        granted?.saturating_duration_since(killed).as_secs_f64() * 1_000.0,
    );
    Ok(sample)
}
