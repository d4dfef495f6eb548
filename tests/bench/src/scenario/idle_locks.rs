//! Measures what locks cost the server and the process when they are only held and renewed.

use std::time::{Duration, Instant};

use super::Turn;
use crate::{
    children::unexpected,
    error::Result,
    report::Metric,
    sample::{Sample, float},
    worker::{Answer, Job, Order, Task},
};

/// How many renewal periods are measured; a period is a third of the lease.
const PERIODS: u32 = 3;

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let asked = Duration::from_millis(turn.case.ttl_ms.unwrap_or(6_000).into());
    let ttl = asked.max(turn.target.locker.descriptor().min_ttl);
    let locks = turn.case.names.unwrap_or(1);
    let task = Task::Idle { prefix: turn.name.to_owned(), locks, ttl };
    let mut child = turn.children.start(Job { url: turn.target.url.clone(), task }).await?;
    let mut sample = Sample::new()?;
    sample.put(Metric::LeaseMs, ttl.as_secs_f64() * 1_000.0);
    match child.answer().await? {
        Answer::Held { bytes_per_lock } => sample.put(Metric::BytesPerLock, bytes_per_lock),
        other => return Err(unexpected(&other)),
    }
    // After the first renewals of all locks, the window holds whole periods.
    tokio::time::sleep(ttl / 3).await;
    let before = turn.target.requests().await;
    let start = Instant::now();
    child.order(&Order::Watch { span: ttl / 3 * PERIODS }).await?;
    match child.answer().await? {
        Answer::Watched { cpu_percent } => sample.put(Metric::CpuPercent, cpu_percent),
        other => return Err(unexpected(&other)),
    }
    let after = turn.target.requests().await;
    let passed = start.elapsed();
    if let (Some(before), Some(after)) = (before, after) {
        sample.put(
            Metric::IdleRequestsPerSecond,
            float(after.saturating_sub(before)) / passed.as_secs_f64(),
        );
    }
    child.order(&Order::GiveBack).await?;
    child.ready().await?;
    child.end().await?;
    Ok(sample)
}
