//! A process that holds the lock is killed, while another one waits.

use std::time::{Duration, Instant};

use tokio::{task::JoinSet, time::sleep};

use super::{Turn, lock_error};
use crate::{
    error::{Error, Result},
    report::Metric,
    sample::Sample,
    worker::{Job, Task},
};

/// For the waiter to be in line, and for the lease to be a renewed one some of the times.
const BEFORE_THE_KILL: Duration = Duration::from_millis(300);

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let ttl = Duration::from_millis(turn.case.ttl_ms.unwrap_or(2_000).into());
    let url = turn.target.url_with_session(ttl)?;
    let holder = Job { url, task: Task::Hold { name: turn.name.to_owned(), ttl } };
    let mut holder = turn.children.start(holder).await?;
    holder.ready().await?;
    let mutex = turn.target.locker.mutex(turn.name).map_err(lock_error)?;
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let guard = mutex.lock().await.map_err(lock_error)?;
        let granted = Instant::now();
        guard.release().await.map_err(lock_error)?;
        Ok(granted)
    });
    sleep(BEFORE_THE_KILL).await;
    if !waiting.is_empty() && waiting.try_join_next().is_some() {
        return Err(Error::new("the lock was granted while another process held it"));
    }
    let killed = holder.kill().await?;
    let granted = waiting.join_next().await;
    let granted: Result<Instant> = granted
        .ok_or_else(|| Error::new("nobody waited"))?
        .map_err(|error| Error::of("a task came to a bad end", error))?;
    let mut sample = Sample::new()?;
    sample.put(Metric::RecoveryMs, granted?.saturating_duration_since(killed).as_secs_f64() * 1_000.0);
    Ok(sample)
}
