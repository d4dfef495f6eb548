//! All tasks want one name, in one process, or in several processes that start together.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::{
    Turn,
    closed::{Tally, Want, Window, closed_loop, put_fairness, put_waits, repeat},
    lock_error,
};
use crate::{
    children::{Child, unexpected},
    clock,
    error::Result,
    report::Metric,
    sample::{Durations, Sample, float, nanos},
    worker::{Answer, Job, Order, Share, Task},
};

/// The time for an order to reach all processes before the work begins.
const LEAD: Duration = Duration::from_millis(200);

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    match turn.case.processes {
        None | Some(0 | 1) => {
            let mutex = turn.target.locker.mutex(turn.name).map_err(lock_error)?;
            repeat(turn, vec![Want::Mutex(mutex); turn.tasks()]).await
        }
        Some(processes) => apart(turn, processes).await,
    }
}

async fn apart(turn: &Turn<'_>, processes: u32) -> Result<Sample> {
    let tasks = turn.case.tasks.unwrap_or(1);
    let jobs = (0..processes).map(|number| Job {
        url: turn.target.url.clone(),
        task: Task::Contend {
            name: turn.name.to_owned(),
            tasks: share_of(tasks, processes, number),
            hold: turn.hold(),
        },
    });
    let mut children = try_join_all(jobs.map(|job| turn.children.start(job))).await?;
    try_join_all(children.iter_mut().map(Child::ready)).await?;
    // The count starts here, to leave out the requests of connecting.
    let counted_from = turn.target.requests().await;
    let order = Order::Run { start_ns: clock::nanos() + nanos(LEAD), slice: turn.slice };
    let shares = try_join_all(children.iter_mut().map(|child| async {
        child.order(&order).await?;
        match child.answer().await? {
            Answer::Contended(share) => Ok(share),
            other => Err(unexpected(&other)),
        }
    }))
    .await?;
    // The count ends here, to leave out the requests that the processes send when they end.
    let counted_until = turn.target.requests().await;
    try_join_all(children.into_iter().map(Child::end)).await?;
    Ok(Sample { counted_from, counted_until, ..merge(&shares, turn.slice)? })
}

/// One process's part of the tasks, as even as possible.
fn share_of(tasks: u32, processes: u32, number: u32) -> u32 {
    tasks / processes + u32::from(number < tasks % processes)
}

fn merge(shares: &[Share], slice: Duration) -> Result<Sample> {
    let mut sample = Sample::new()?;
    let served: Vec<_> = shares.iter().flat_map(|share| share.served.iter().copied()).collect();
    sample.all_grants = shares.iter().map(|share| share.all_grants).sum();
    sample.put(Metric::GrantsPerSecond, float(served.iter().sum()) / slice.as_secs_f64());
    let mut waits = Durations::new()?;
    for share in shares {
        waits.add_counts(&share.waits);
    }
    put_waits(&mut sample, waits);
    put_fairness(&mut sample, &served);
    Ok(sample)
}

/// The work of one process, from the common instant on.
pub(crate) async fn contend(
    want: Want,
    tasks: u32,
    hold: Duration,
    start: Instant,
    slice: Duration,
) -> Result<Share> {
    let window = Window::after_warm_up(start, slice);
    tokio::time::sleep_until(start.into()).await;
    let tasks = usize::try_from(tasks).unwrap_or(usize::MAX);
    let tallies = closed_loop(vec![want; tasks], hold, window, None).await?;
    let waits =
        Durations::of(tallies.iter().flat_map(|tally: &Tally| tally.waits.iter().copied()))?;
    Ok(Share {
        served: tallies.iter().map(|tally| tally.inside).collect(),
        all_grants: tallies.iter().map(|tally| tally.all).sum(),
        waits: waits.counts(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_spread_evenly_and_none_is_lost() {
        for (tasks, processes) in [(8, 8), (64, 8), (10, 4), (256, 8)] {
            let shares: Vec<_> =
                (0..processes).map(|number| share_of(tasks, processes, number)).collect();
            assert_eq!(shares.iter().sum::<u32>(), tasks);
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        }
    }

    #[test]
    fn the_shares_of_all_processes_sum_up() {
        let share = |served: &[u64], wait| Share {
            served: served.to_vec(),
            all_grants: served.iter().sum::<u64>() + 2,
            waits: vec![(wait, served.iter().sum())],
        };
        let sample = merge(
            &[share(&[20, 40], 1_000_000), share(&[30, 30], 3_000_000)],
            Duration::from_secs(2),
        )
        .unwrap();
        assert_eq!(sample.all_grants, 124);
        let figure = |metric| sample.figures.get(&metric).copied().unwrap();
        assert!((figure(Metric::GrantsPerSecond) - 60.0).abs() < 1e-9);
        assert!((figure(Metric::MostOverLeast) - 2.0).abs() < 1e-9);
        assert!((figure(Metric::WaitMaxUs) - 3_000.0).abs() < 10.0);
    }
}
