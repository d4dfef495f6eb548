//! Requests come at a fixed rate, even if the answers are slow. A request's wait counts from the
//! instant at which it was due. So a store that stalls for a while delays all requests that come
//! during the stall, and not just the request in progress.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use lockkit::Mutex;
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc},
    task::{JoinError, JoinSet},
};

use super::{Turn, closed::put_waits, lock_error};
use crate::{
    error::{Error, Result},
    floor::{FloorClient, Rival},
    report::Metric,
    sample::{Durations, Sample, float, nanos},
};

/// The highest number of requests in progress. Later requests still count from the instant at which
/// they were due.
const MOST_AT_ONCE: usize = 1_024;
/// The length of the loop in slices. At a low rate, one slice would contain too few requests to
/// measure the slowest.
const SHORTEST: u32 = 4;

pub(super) async fn lockkit(turn: &Turn<'_>) -> Result<Sample> {
    let names = turn.case.names.unwrap_or(1);
    let mutexes =
        (0..names).map(|number| turn.target.locker.mutex(&format!("{}/{number}", turn.name)));
    let mutexes: Vec<_> = mutexes.collect::<lockkit::Result<_>>().map_err(lock_error)?;
    for mutex in &mutexes {
        mutex.lock().await.map_err(lock_error)?.release().await.map_err(lock_error)?;
    }
    let counted_from = turn.target.requests().await;
    Ok(Sample { counted_from, ..offer(mutexes, Times::of(turn), MOST_AT_ONCE).await? })
}

/// Sends the same requests to the bare driver. Each client has its own name, and requests that are
/// due while the client is busy wait for it.
pub(super) async fn floor(turn: &Turn<'_>, rival: &Rival, clients: u32) -> Result<Sample> {
    let mut free = rival.clients(clients).await?;
    let warm_up = free.iter_mut().enumerate();
    let warm_up = warm_up
        .map(async |(number, client)| client.pair(&name_of(turn, number), Duration::ZERO).await);
    try_join_all(warm_up).await?;
    let counted_from = turn.target.requests().await;
    let named =
        free.into_iter().enumerate().map(|(number, client)| (name_of(turn, number), client));
    let (free, sample) = offer_bare(named.collect(), Times::of(turn)).await?;
    rival.keep(clients, free).await;
    Ok(Sample { counted_from, ..sample })
}

fn name_of(turn: &Turn<'_>, number: usize) -> String {
    format!("{}/floor/{number}", turn.name)
}

/// The instants at which requests are due.
#[derive(Clone, Copy, Debug)]
struct Times {
    start: Instant,
    gap: Duration,
    span: Duration,
}

impl Times {
    fn new(rate: f64, span: Duration) -> Self {
        let start = Instant::now() + Duration::from_millis(1);
        Self { start, gap: Duration::from_secs_f64(1.0 / rate), span }
    }

    fn of(turn: &Turn<'_>) -> Self {
        Self::new(turn.case.rate_per_second.unwrap_or(1.0), turn.slice * SHORTEST)
    }

    fn until(&self) -> Instant {
        self.start + self.span
    }
}

/// The instant at which a request was due, and the instant of its grant.
type Served = Result<(Instant, Instant)>;

/// Asks for the locks in turn, with at most this many requests in progress.
async fn offer(mutexes: Vec<Mutex>, times: Times, most_at_once: usize) -> Result<Sample> {
    let room = Arc::new(Semaphore::new(most_at_once));
    let (sender, mut served) = mpsc::unbounded_channel();
    let mut number = 0;
    let ask = move |due: Instant, tasks: &mut JoinSet<()>, runtime: &Handle| {
        let Some(mutex) = mutexes.get(number % mutexes.len().max(1)).cloned() else { return };
        number += 1;
        let room = Arc::clone(&room);
        let sender = sender.clone();
        let task = async move {
            // A request that waits for a free place is late, and its wait counts.
            let _place = room.acquire().await;
            let _ = sender.send(pair(&mutex, due).await);
        };
        tasks.spawn_on(task, runtime);
    };
    let tasks = arrivals(times, ask);
    let mut waits = Vec::new();
    let mut in_time = 0;
    while let Some(served) = served.recv().await {
        let (due, granted) = served?;
        waits.push(nanos(granted - due));
        in_time += u64::from(granted < times.until());
    }
    all_well(tasks).await?;
    let mut sample = sample(waits)?;
    sample.put(Metric::GrantsPerSecond, float(in_time) / times.span.as_secs_f64());
    Ok(sample)
}

async fn pair(mutex: &Mutex, due: Instant) -> Served {
    let guard = mutex.lock().await.map_err(lock_error)?;
    let granted = Instant::now();
    guard.release().await.map_err(lock_error)?;
    Ok((due, granted))
}

type Client = Box<dyn FloorClient>;

/// Gives the requests to the clients in turn.
async fn offer_bare(clients: Vec<(String, Client)>, times: Times) -> Result<(Vec<Client>, Sample)> {
    let mut work = JoinSet::new();
    let mut queues = Vec::new();
    for (name, mut client) in clients {
        let (queue, mut due) = mpsc::unbounded_channel::<Instant>();
        queues.push(queue);
        work.spawn(async move {
            let mut waits = Vec::new();
            while let Some(due) = due.recv().await {
                waits.push(nanos(client.pair(&name, Duration::ZERO).await? - due));
            }
            Ok::<_, Error>((client, waits))
        });
    }
    let mut number = 0;
    let tasks = arrivals(times, move |due, _tasks, _runtime| {
        if let Some(queue) = queues.get(number % queues.len().max(1)) {
            // A client that has failed reports its own error.
            let _ = queue.send(due);
        }
        number += 1;
    });
    let mut free = Vec::new();
    let mut waits = Vec::new();
    while let Some(done) = work.join_next().await {
        let (client, waited) = done.map_err(bad_end)??;
        free.push(client);
        waits.extend(waited);
    }
    all_well(tasks).await?;
    Ok((free, sample(waits)?))
}

fn sample(waits: Vec<u64>) -> Result<Sample> {
    let mut sample = Sample::new()?;
    sample.all_grants = u64::try_from(waits.len()).unwrap_or(u64::MAX);
    put_waits(&mut sample, Durations::of(waits)?);
    Ok(sample)
}

fn bad_end(error: JoinError) -> Error {
    Error::of("a task of the benchmark failed", error)
}

/// The tasks of all requests. The thread sends them after the last request. Dropping this stops the
/// tasks.
type Tasks = mpsc::Receiver<JoinSet<()>>;

async fn all_well(mut tasks: Tasks) -> Result<()> {
    let mut tasks = tasks.recv().await.unwrap_or_default();
    while let Some(done) = tasks.join_next().await {
        done.map_err(bad_end)?;
    }
    Ok(())
}

/// Sends requests at the instants at which they are due, from a separate thread. The runtime's
/// timer counts in milliseconds, and a fast store answers sooner. A hop from task to task would
/// also take too long.
fn arrivals(
    times: Times,
    mut ask: impl FnMut(Instant, &mut JoinSet<()>, &Handle) + Send + 'static,
) -> Tasks {
    let (sender, receiver) = mpsc::channel(1);
    let runtime = Handle::current();
    std::thread::spawn(move || {
        let mut tasks = JoinSet::new();
        let mut due = times.start;
        while due < times.until() && !sender.is_closed() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            ask(due, &mut tasks, &runtime);
            due += times.gap;
        }
        let _ = sender.try_send(tasks);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use lockkit::Locker;
    use lockkit_conformance::StallMeter;

    use super::*;

    fn mutexes(locker: &Locker) -> Vec<Mutex> {
        (0..4).map(|number| locker.mutex(&format!("open/{number}")).unwrap()).collect()
    }

    /// Catches a loop that measures from the actual start: it would see only the four slow requests
    /// that it has places for.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_stall_delays_all_requests_that_were_due_meanwhile() {
        let meter = StallMeter::start();
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
        let (sample, ()) =
            tokio::join!(offer(mutexes, Times::new(500.0, Duration::from_secs(1)), 4), blocker);
        let sample = sample.unwrap();
        assert_eq!(sample.all_grants, 500);
        // A fifth of all requests were due in the stall, and half of them waited for more than half
        // of the stall.
        let at = |percentile| sample.durations.micros_at(percentile);
        assert!(at(99.0) > 150_000.0 && at(85.0) > 30_000.0, "{} {}", at(99.0), at(85.0));
        // One thread may stall for half of the run, and the meter does not see that.
        let most = micros_beside(&meter, 30);
        assert!(at(10.0) < most, "{} of {most}", at(10.0));
    }

    fn micros_beside(meter: &StallMeter, millis: u64) -> f64 {
        (Duration::from_millis(millis) + meter.longest() * 2).as_secs_f64() * 1e6
    }

    /// A client that takes 20 ms for a pair, half of it before the grant.
    struct Slow;

    #[async_trait]
    impl FloorClient for Slow {
        async fn pair(&mut self, _name: &str, _hold: Duration) -> Result<Instant> {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let granted = Instant::now();
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(granted)
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_that_come_while_a_bare_client_is_busy_are_late() {
        let clients = || {
            (0..2)
                .map(|number| {
                    let client: Client = Box::new(Slow);
                    (number.to_string(), client)
                })
                .collect()
        };
        // The rate is twice what two clients can do, so the last requests wait for as long as the
        // run took.
        let span = Duration::from_millis(400);
        let (free, sample) = offer_bare(clients(), Times::new(200.0, span)).await.unwrap();
        assert_eq!((free.len(), sample.all_grants), (2, 80));
        assert!(
            sample.durations.micros_at(95.0) > 300_000.0,
            "{}",
            sample.durations.micros_at(95.0)
        );
        let meter = StallMeter::start();
        let (_, sample) = offer_bare(clients(), Times::new(20.0, span)).await.unwrap();
        let fastest = sample.durations.micros_at(10.0);
        let most = micros_beside(&meter, 50);
        assert!(fastest < most, "{fastest} of {most}");
    }
}
