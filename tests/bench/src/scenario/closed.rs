//! Tasks that ask for a lock again as soon as they have released it. All scenarios except the open
//! loop use them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use lockkit::{LockGuard, Mutex, RwLock, Semaphore};
use rand::RngExt as _;
use tokio::{task::JoinSet, time::sleep};

use super::{Turn, zipf::Popular};
use crate::{
    error::{Error, Result},
    report::Metric,
    sample::{Durations, Sample, float, nanos},
};

/// The least number of grants per task, on average, that makes the ratio of most to least
/// meaningful.
const GRANTS_FOR_FAIRNESS: u64 = 20;

/// The time, in windows, during which served tasks continue to ask after the window. Without them,
/// the tasks that still wait since the window would get their grants too soon. A starved task waits
/// longer, and its wait counts at least this time.
const DRAIN: u32 = 4;

/// The lock that a task repeatedly asks for.
#[derive(Clone)]
pub(crate) enum Want {
    Mutex(Mutex),
    /// One of many names. The task chooses some names more often than others.
    Popular(Arc<Popular>),
    /// Reads in this many of a hundred turns, and writes in the others.
    ReadWrite(RwLock, u32),
    Permit(Semaphore),
}

impl Want {
    pub(crate) async fn take(&self) -> lockkit::Result<LockGuard> {
        match self {
            Self::Mutex(mutex) => mutex.lock().await,
            Self::Popular(names) => names.choose().lock().await,
            Self::ReadWrite(lock, readers_percent) => {
                let reads = rand::rng().random_range(0..100) < *readers_percent;
                if reads { lock.read().await } else { lock.write().await }
            }
            Self::Permit(semaphore) => semaphore.acquire().await,
        }
    }
}

/// The measured part of the time. The work begins before the window, and all tasks that wait at the
/// end of the window still get their grants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Window {
    /// A window that opens after the tasks had time to reach a steady state.
    pub(crate) fn after_warm_up(start: Instant, slice: Duration) -> Self {
        let from = start + slice / 4;
        Self { from, until: from + slice }
    }

    pub(crate) fn holds(&self, instant: Instant) -> bool {
        self.from <= instant && instant < self.until
    }

    /// Whether a task waited within the window. The longest waits begin before it, or end after it,
    /// or both.
    fn overlaps(&self, asked: Instant, granted: Instant) -> bool {
        asked < self.until && granted >= self.from
    }

    /// When all tasks stop asking, even if a task has waited since before the window closed.
    fn end(&self) -> Instant {
        self.until + (self.until - self.from) * DRAIN
    }

    pub(crate) fn seconds(&self) -> f64 {
        (self.until - self.from).as_secs_f64()
    }
}

/// The instant of the last call of a release, on one clock for all tasks.
#[derive(Debug)]
pub(crate) struct LastRelease {
    start: Instant,
    at: AtomicU64,
}

impl LastRelease {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), at: AtomicU64::new(0) })
    }

    fn called(&self) {
        self.at.store(nanos(self.start.elapsed()), Ordering::SeqCst);
    }

    /// The time since the last release, for the present holder: no other task can release
    /// meanwhile.
    fn gap(&self, granted: Instant) -> Option<u64> {
        match self.at.load(Ordering::SeqCst) {
            0 => None,
            at => nanos(granted - self.start).checked_sub(at),
        }
    }
}

/// The results of one task.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// Grants within the window.
    pub(crate) inside: u64,
    /// Grants within the window, before it, and after it.
    pub(crate) all: u64,
    /// All waits that overlap the window, in nanoseconds, whenever they began and ended.
    pub(crate) waits: Vec<u64>,
    /// The times since another task's release, in nanoseconds.
    pub(crate) gaps: Vec<u64>,
}

/// Runs one task for each want, with a warm-up of a quarter slice.
pub(crate) async fn repeat(turn: &Turn<'_>, wants: Vec<Want>) -> Result<Sample> {
    let window = Window::after_warm_up(Instant::now(), turn.slice);
    let tallies = closed_loop(wants, turn.hold(), window, None).await?;
    sample(&tallies, &window)
}

/// Lets one task for each want work until the window closes.
pub(crate) async fn closed_loop(
    wants: Vec<Want>,
    hold: Duration,
    window: Window,
    last: Option<Arc<LastRelease>>,
) -> Result<Vec<Tally>> {
    let mut tasks = JoinSet::new();
    let waiting = Arc::new(AtomicUsize::new(wants.len()));
    for want in wants {
        tasks.spawn(work(want, hold, window, Arc::clone(&waiting), last.clone()));
    }
    let mut tallies = Vec::new();
    while let Some(tally) = tasks.join_next().await {
        tallies.push(tally.map_err(|error| Error::of("a task of the benchmark failed", error))??);
    }
    Ok(tallies)
}

/// `waiting` is the number of tasks that may still wait for a request from within the window.
async fn work(
    want: Want,
    hold: Duration,
    window: Window,
    waiting: Arc<AtomicUsize>,
    last: Option<Arc<LastRelease>>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut is_served = false;
    loop {
        let asked = Instant::now();
        if asked >= window.until {
            if !is_served {
                is_served = true;
                waiting.fetch_sub(1, Ordering::SeqCst);
            }
            if waiting.load(Ordering::SeqCst) == 0 || asked >= window.end() {
                return Ok(tally);
            }
        }
        let guard = want.take().await.map_err(refused)?;
        let granted = Instant::now();
        tally.all += 1;
        if window.overlaps(asked, granted) {
            tally.waits.push(nanos(granted - asked));
        }
        if window.holds(granted) {
            tally.inside += 1;
            tally.gaps.extend(last.as_ref().and_then(|last| last.gap(granted)));
        }
        if !hold.is_zero() {
            sleep(hold).await;
        }
        if let Some(last) = &last {
            last.called();
        }
        guard.release().await.map_err(refused)?;
        // If a store answers without waiting, the first task would keep the thread to itself.
        tokio::task::coop::consume_budget().await;
    }
}

fn refused(error: lockkit::Error) -> Error {
    Error::of("could not take or release a lock", error)
}

/// The figures of all tasks together, with hand-offs if there are any.
pub(crate) fn sample(tallies: &[Tally], window: &Window) -> Result<Sample> {
    let mut sample = Sample::new()?;
    let served: Vec<_> = tallies.iter().map(|tally| tally.inside).collect();
    sample.all_grants = tallies.iter().map(|tally| tally.all).sum();
    sample.put(Metric::GrantsPerSecond, float(served.iter().sum()) / window.seconds());
    let waits = Durations::of(tallies.iter().flat_map(|tally| tally.waits.iter().copied()))?;
    put_waits(&mut sample, waits);
    put_fairness(&mut sample, &served);
    Ok(sample)
}

pub(crate) fn put_waits(sample: &mut Sample, waits: Durations) {
    if !waits.is_empty() {
        sample.put(Metric::WaitP50Us, waits.micros_at(50.0));
        if waits.tell(99.0) {
            sample.put(Metric::WaitP99Us, waits.micros_at(99.0));
        }
        sample.put(Metric::WaitMaxUs, waits.micros_at(100.0));
    }
    sample.durations = waits;
}

/// Adds the ratio of most to least grants, which is infinite if one task got no grant.
pub(crate) fn put_fairness(sample: &mut Sample, served: &[u64]) {
    let tasks = u64::try_from(served.len()).unwrap_or(u64::MAX);
    if let (Some(&most), Some(&least)) = (served.iter().max(), served.iter().min())
        && tasks > 1
        && served.iter().sum::<u64>() >= tasks * GRANTS_FOR_FAIRNESS
    {
        sample.put(Metric::MostOverLeast, float(most) / float(least));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_tasks_is_shown_only_with_enough_grants_for_each() {
        for (served, ratio) in
            [(&[30_u64, 20][..], Some(1.5)), (&[20, 19], None), (&[100], None), (&[], None)]
        {
            let mut sample = Sample::new().unwrap();
            put_fairness(&mut sample, served);
            assert_eq!(sample.figures.get(&Metric::MostOverLeast).copied(), ratio, "{served:?}");
        }
    }

    /// Catches a figure that leaves out starved tasks, and so makes a very unfair store look fair.
    #[test]
    fn a_starved_task_is_listed() {
        for (served, ratio) in [(&[3_000_u64, 10][..], 300.0), (&[100, 100, 0], f64::INFINITY)] {
            let mut sample = Sample::new().unwrap();
            put_fairness(&mut sample, served);
            assert_eq!(sample.figures.get(&Metric::MostOverLeast), Some(&ratio), "{served:?}");
        }
    }

    #[test]
    fn a_wait_counts_if_any_of_it_is_within_the_window() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let window = Window { from: at(100), until: at(200) };
        for (asked, granted, counts) in [
            (110, 120, true),
            (0, 100, true),
            (199, 900, true),
            (0, 900, true),
            (0, 99, false),
            (200, 201, false),
        ] {
            assert_eq!(window.overlaps(at(asked), at(granted)), counts, "{asked} to {granted}");
        }
    }

    /// Catches tasks that stop when the window closes: the last waiters would have short waits.
    #[tokio::test(flavor = "multi_thread")]
    async fn the_last_waiters_wait_as_long_as_all_others() {
        let mutex = lockkit::Locker::memory().mutex("closed").unwrap();
        // The first waits, which are shorter, end before the window.
        let start = Instant::now() + Duration::from_millis(500);
        let window = Window::after_warm_up(start, Duration::from_millis(800));
        let tasks = 8;
        let hold = Duration::from_millis(20);
        let wants = vec![Want::Mutex(mutex); tasks];
        let tallies = closed_loop(wants, hold, window, None).await.unwrap();
        let waits: Vec<_> = tallies.iter().flat_map(|tally| tally.waits.iter().copied()).collect();
        // Seven other tasks were ahead of each wait. A busy machine may delay a task between its
        // place in the queue and its clock.
        let least = waits.iter().min().unwrap();
        assert!(waits.len() > 10 && *least >= nanos(hold * 3), "{waits:?}");
    }
}
