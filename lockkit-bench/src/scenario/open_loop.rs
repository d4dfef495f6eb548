//! Requests come at a fixed rate, however slow the answers are, and are late from the instant at which they were due:
//! a store that stalls for a while keeps all of them waiting that came meanwhile, and not just the one that was under way.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit::Mutex;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use super::{Turn, closed::put_waits, lock_error};
use crate::{
    error::{Error, Result},
    report::Metric,
    sample::{Durations, Sample, float, nanos},
};

/// So many requests may be under way. Those that come later still count from when they were due.
const MOST_AT_ONCE: usize = 1_024;
/// At a low rate, a short slice would hold too few requests to say anything of the slowest.
const SHORTEST: u32 = 4;

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let names = turn.case.names.unwrap_or(1);
    let mutexes = (0..names).map(|number| turn.target.locker.mutex(&format!("{}/{number}", turn.name)));
    let mutexes: Vec<_> = mutexes.collect::<lockkit::Result<_>>().map_err(lock_error)?;
    for mutex in &mutexes {
        mutex.lock().await.map_err(lock_error)?.release().await.map_err(lock_error)?;
    }
    let rate = turn.case.rate_per_second.unwrap_or(1.0);
    let counted_from = turn.target.server.requests().await?;
    Ok(Sample { counted_from, ..offer(&mutexes, rate, turn.slice * SHORTEST, MOST_AT_ONCE).await? })
}

/// Asks for the locks in turn, at this rate and for so long, with no more than so many requests under way.
async fn offer(mutexes: &[Mutex], rate: f64, span: Duration, most_at_once: usize) -> Result<Sample> {
    let gap = Duration::from_secs_f64(1.0 / rate);
    let start = Instant::now() + Duration::from_millis(1);
    let mut due = arrivals(start, gap, start + span);
    let room = Arc::new(Semaphore::new(most_at_once));
    let mut tasks = JoinSet::new();
    let (mut waits, mut in_time) = (Vec::new(), 0);
    let mut turn = mutexes.iter().cycle();
    let mut serve = |served: Served| -> Result<()> {
        let (due, granted) = served.map_err(|error| Error::of("a task came to a bad end", error))??;
        waits.push(nanos(granted - due));
        in_time += u64::from(granted < start + span);
        Ok(())
    };
    while let Some(due) = due.recv().await {
        let Some(mutex) = turn.next().cloned() else {
            return Err(Error::new("there are no names to ask for"));
        };
        // Nothing here is measured but from `due`: waiting for room makes the request late, as it should.
        let place = Arc::clone(&room).acquire_owned().await;
        let place = place.map_err(|error| Error::of("can't ask for more locks", error))?;
        tasks.spawn(async move {
            let guard = mutex.lock().await.map_err(lock_error)?;
            let granted = Instant::now();
            guard.release().await.map_err(lock_error)?;
            drop(place);
            Ok((due, granted))
        });
        while let Some(served) = tasks.try_join_next() {
            serve(served)?;
        }
    }
    while let Some(served) = tasks.join_next().await {
        serve(served)?;
    }
    let mut sample = Sample::new()?;
    sample.all_grants = u64::try_from(waits.len()).unwrap_or(u64::MAX);
    sample.put(Metric::GrantsPerSecond, float(in_time) / span.as_secs_f64());
    put_waits(&mut sample, Durations::of(waits)?);
    Ok(sample)
}

/// When a request was due, and when it was granted.
type Served = Result<Result<(Instant, Instant)>, tokio::task::JoinError>;

/// The instants at which requests are due, each told when it has come. By a thread of its own: the runtime's timer counts
/// in milliseconds, which would be most of what a fast store takes.
fn arrivals(start: Instant, gap: Duration, until: Instant) -> mpsc::UnboundedReceiver<Instant> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let mut due = start;
        while due < until {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if sender.send(due).is_err() {
                break;
            }
            due += gap;
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use lockkit::Locker;

    use super::*;

    fn mutexes(locker: &Locker) -> Vec<Mutex> {
        (0..4).map(|number| locker.mutex(&format!("open/{number}")).unwrap()).collect()
    }

    /// One that measures from the actual start finds the four slow ones that there is room for.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_stall_is_in_the_waits_of_all_that_were_due_meanwhile() {
        let locker = Locker::memory();
        let mutexes = mutexes(&locker);
        let blocker = {
            let mutexes = mutexes.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let mut guards = Vec::new();
                for mutex in &mutexes {
                    guards.push(mutex.lock().await.unwrap());
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let (sample, ()) = tokio::join!(offer(&mutexes, 500.0, Duration::from_secs(1), 4), blocker);
        let sample = sample.unwrap();
        assert_eq!(sample.all_grants, 500);
        // A fifth of all were due in the stall, and half of them waited for more than half of it.
        let at = |percentile| sample.durations.micros_at(percentile);
        assert!(at(99.0) > 150_000.0 && at(85.0) > 30_000.0, "{} {}", at(99.0), at(85.0));
        assert!(at(50.0) < 30_000.0, "{}", at(50.0));
    }
}
