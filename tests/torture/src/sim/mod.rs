//! Virtual processes on a scripted store, in one thread, on a simulated clock. The clock advances
//! only while all tasks wait, so the same seed gives the same history, to the last record.
//!
//! Each process has its own locker. The seed decides what lies between the processes and the store:
//!
//! * how long a request takes,
//! * whether the request, its reply or a wake-up gets lost,
//! * whether the request arrives after its sender gave it up,
//! * whether the store falls silent,
//! * whether a process is paused or dies, or an operator frees its lock.

mod backend;
mod dice;
mod link;
mod log;
mod nemesis;
mod process;
mod register;
mod row;
mod scenario;
mod store;
mod task;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockkit::chance::Seeded;
use tokio::{
    runtime::{Builder, Handle},
    time::timeout,
};

pub use self::scenario::{Leases, Scenario, StoreSort, Waiting, Weather};
use self::{
    dice::Dice,
    link::World,
    log::{Log, digest},
    nemesis::Nemesis,
    process::Running,
    register::Register,
    store::Store,
};
use crate::{
    check::Terms,
    history::{DIRECTOR, Event, Record},
};

/// The longest run, on its own clock.
const LONGEST: Duration = Duration::from_secs(300);

/// Timers are rounded up to a millisecond, twice. The clock does not advance while a task works.
const TOLD_WITHIN: Duration = Duration::from_millis(2);

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// The history, in order of time. Times count from the start of the run.
    pub records: Vec<Record>,
    /// The promises that the store must keep.
    pub terms: Terms,
    /// The leftovers at the end. The history also contains them.
    pub leaks: Vec<String>,
    /// The number of faults of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// One number for the whole history.
    pub digest: u64,
}

/// Runs this seed. The same seed gives the same digest.
#[must_use]
pub fn simulate(seed: u64) -> Simulated {
    run(Scenario::new(seed))
}

/// Runs a scenario.
///
/// # Panics
/// The machine has no file descriptor left for a runtime.
#[must_use]
pub fn run(scenario: Scenario) -> Simulated {
    let runtime =
        Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let _seeded = Seeded::begin(scenario.seed);
        act(Arc::new(scenario)).await
    })
}

async fn act(scenario: Arc<Scenario>) -> Simulated {
    let alive = || Handle::current().metrics().num_alive_tasks();
    let before = alive();
    let log = Arc::new(Log::new());
    let store = Store::new(scenario.store, Arc::clone(&log));
    let world = World::new(store, Arc::clone(&log), Dice::new(scenario.seed, 4), scenario.weather);
    let register = Arc::new(Register::new(Arc::clone(&log)));
    let start = |number| Running::start(&world, &register, &scenario, number);
    let mut processes: Vec<_> = (1..=scenario.processes).map(start).collect();
    let mut dead = Vec::new();
    let mut leaks = Vec::new();
    let mut nemesis = Nemesis::new(&world, &register, &scenario);
    if timeout(LONGEST, nemesis.rage(&mut processes, &mut dead)).await.is_err() {
        leaks.push("tasks that never end".to_owned());
    }
    nemesis.settle().await;
    for running in &mut processes {
        match timeout(Duration::ZERO, running.done()).await {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => leaks.push(panic),
            Err(_) => running.die(),
        }
        let process = &running.process;
        if !matches!(timeout(LONGEST, process.locker.shutdown()).await, Ok(Ok(()))) {
            leaks.push(format!("process {} can't be shut down", process.number()));
        }
        process.write(Event::Ends { tasks: 0, files: 0 });
    }
    if !scenario.store.not_after {
        // A request that arrived late has its effect until the lease or the place in the queue
        // ends.
        link::pause(scenario.store.place(scenario.longest_ttl())).await;
    }
    let buried: Vec<_> = dead.iter().map(|running| running.process.number()).collect();
    leaks.extend(world.store.left(&buried));
    // By then the keepers of the dead processes have given up.
    let links: Vec<_> =
        processes.iter().chain(&dead).map(|running| Arc::clone(&running.process.link)).collect();
    drop((processes, dead));
    link::pause(scenario.longest_ttl() * 40).await;
    if leaks.is_empty() {
        leaks = world.store.left(&[]);
    }
    let claims: usize = links.iter().map(|link| link.live_claims()).sum();
    if claims > 0 {
        leaks.push(format!("{claims} claim objects"));
    }
    if alive() > before {
        leaks.push(format!("{} tasks", alive() - before));
    }
    for what in &leaks {
        log.write(DIRECTOR, Event::Leaks { what: what.clone() });
    }
    let (records, faults) = log.take();
    let digest = digest(&records);
    Simulated { records, terms: terms(&scenario), leaks, faults, digest }
}

/// The terms allow a waiter some repeated bad luck, but not for long.
fn terms(scenario: &Scenario) -> Terms {
    let poll = scenario.store.longest_poll() * 5 / 4;
    let takeover_delay = match scenario.store.leases {
        Leases::Bound(notice) => notice + poll,
        Leases::Session(timeout) => timeout + poll,
        Leases::Own if scenario.store.has_queue() => scenario.store.place(Duration::ZERO),
        Leases::Own => poll,
    };
    let connection_bound = matches!(scenario.store.leases, Leases::Bound(_));
    let slack = Duration::from_millis(if scenario.weather.is_fair() { 100 } else { 1_500 });
    let slack = slack + scenario.weather.far * 4;
    Terms {
        connection_bound,
        ends_with_links: connection_bound,
        async_failover: false,
        takeover_delay,
        slack,
        told_within: TOLD_WITHIN,
    }
}
