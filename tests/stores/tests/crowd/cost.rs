//! Measures what a grant costs the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit::{LockGuard, Locker};
use tokio::{
    runtime::Runtime,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::store::Store;

const TASKS: u64 = 64;
const COUNTED: Duration = Duration::from_millis(1_500);
/// So many grants each task must get.
const LEAST: u64 = 5;
/// The bound for events that must happen.
const SOON: Duration = Duration::from_secs(30);

/// The most requests that a grant may take.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) gated: f64,
    /// The bound when each task waits in the store.
    pub(crate) ungated: f64,
    /// The bound for a permit, a reader or a writer, with the gate. `None` if the store has none of
    /// these.
    pub(crate) shared: Option<f64>,
}

/// The lock that the tasks take.
#[derive(Clone, Copy, Debug)]
enum Lock {
    Mutex,
    /// One of four permits.
    Permit,
    /// One of four tasks writes.
    ReadOrWrite,
}

impl Lock {
    async fn take(self, locker: &Locker, task: u64) -> lockkit::Result<LockGuard> {
        match self {
            Self::Mutex => locker.mutex("a")?.lock().await,
            Self::Permit => locker.semaphore("a", 4)?.acquire().await,
            Self::ReadOrWrite if task.is_multiple_of(4) => locker.rw_lock("a")?.write().await,
            Self::ReadOrWrite => locker.rw_lock("a")?.read().await,
        }
    }
}

/// Catches a gate that lets all tasks in, and transfers that are a release and an acquisition. Also
/// catches waiters that poll behind the gate, and, without the gate, waiters that poll in the
/// store. With and without the gate, the tasks get equal numbers of grants.
pub(crate) fn measure(name: &str, store: &Store, bounds: Bounds) -> Result<(), Failed> {
    Runtime::new()?.block_on(async {
        for hold in [Duration::ZERO, Duration::from_millis(1)] {
            let mut costs = Vec::new();
            for gated in [true, false] {
                let locker = lockkit::connect(&store.url()).await?.with_process_gate(gated);
                let cost = timeout(SOON, crowd(store, &locker, Lock::Mutex, hold)).await??;
                locker.shutdown().await?;
                let gate = if gated { "with" } else { "without" };
                println!(
                    "{name}, {hold:?}, {gate} the gate: {:.3} requests a grant, {:.0} grants/s, \
                     {} to {} grants a task",
                    cost.per_grant, cost.rate, cost.fewest, cost.most
                );
                cost.assert_equal_turns();
                costs.push(cost.per_grant);
            }
            assert!(
                costs[0] <= bounds.gated,
                "{:.3} requests a grant, with no gate {:.3}",
                costs[0],
                costs[1]
            );
            assert!(costs[1] <= bounds.ungated, "{:.3} requests a grant with no gate", costs[1]);
        }
        Ok(())
    })
}

/// Catches readers and permits that each wait in the store.
pub(crate) fn measure_shared(name: &str, store: &Store, most: f64) -> Result<(), Failed> {
    Runtime::new()?.block_on(async {
        for lock in [Lock::Permit, Lock::ReadOrWrite] {
            let locker = lockkit::connect(&store.url()).await?;
            let hold = Duration::from_millis(1);
            let Cost { per_grant, rate, .. } =
                timeout(SOON, crowd(store, &locker, lock, hold)).await??;
            locker.shutdown().await?;
            println!("{name}, {lock:?}: {per_grant:.3} requests a grant, {rate:.0} grants/s");
            assert!(per_grant <= most, "{lock:?}: {per_grant:.3} requests a grant");
        }
        Ok(())
    })
}

struct Cost {
    per_grant: f64,
    rate: f64,
    /// Of one task.
    fewest: u64,
    /// Of one task.
    most: u64,
}

impl Cost {
    fn assert_equal_turns(&self) {
        let Self { fewest, most, .. } = self;
        // The measurement can end in the middle of a round.
        assert!(*most <= fewest + 2 + fewest / 10, "C12: {fewest} to {most} grants a task");
    }
}

async fn crowd(store: &Store, locker: &Locker, lock: Lock, hold: Duration) -> Result<Cost, Failed> {
    // This first run makes the connections and other one-time work, which do not count.
    grants(locker, lock, hold, 1, Duration::ZERO).await?;
    let before = store.requests().await?;
    let start = Instant::now();
    let grants = grants(locker, lock, hold, LEAST, COUNTED).await?;
    let elapsed = start.elapsed();
    let requests = store.requests().await? - before;
    let [all, requests] =
        [grants.iter().sum(), requests].map(|count| f64::from(u32::try_from(count).unwrap()));
    Ok(Cost {
        per_grant: requests / all,
        rate: all / elapsed.as_secs_f64(),
        fewest: *grants.iter().min().unwrap(),
        most: *grants.iter().max().unwrap(),
    })
}

/// How many grants each task got in this time, or until each task had the least number.
async fn grants(
    locker: &Locker,
    lock: Lock,
    hold: Duration,
    least: u64,
    time: Duration,
) -> Result<Vec<u64>, Failed> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let locker = locker.clone();
        let stop = Arc::clone(&stop);
        tasks.spawn(async move {
            let mut grants = 0_u64;
            while grants < least || !stop.load(Relaxed) {
                let guard = lock.take(&locker, task).await.unwrap();
                grants += 1;
                if !hold.is_zero() {
                    sleep(hold).await;
                }
                guard.release().await.unwrap();
            }
            grants
        });
    }
    sleep(time).await;
    stop.store(true, Relaxed);
    Ok(tasks.join_all().await)
}
