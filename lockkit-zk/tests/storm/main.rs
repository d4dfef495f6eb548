//! C1, C4 and C6 in a storm: tasks that lock, cancel and drop at random on sessions whose connections are cut, reset,
//! silenced and delayed at random. Afterwards nothing is left, of the locks and in the tree.
//!
//! `LOCKKIT_TEST_STORM_SECONDS` sets how long it lasts, `LOCKKIT_TEST_STORM_SEED` what chance does.

mod chance;
mod chaos;
mod user;

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use lockkit_conformance::{Witness, proxy::Proxy};
use lockkit_core::{LockOptions, Locker};
use lockkit_fixture::{ZooKeeperOptions, ZooKeeperServer};
use lockkit_zk::{Config, ZooKeeper};
use tokio::{runtime::Handle, time::sleep};

use self::{
    chance::Chance,
    chaos::{Faults, chaos},
    user::{Stays, Tally},
};

const SECONDS: u64 = 60;
const SESSIONS: usize = 4;
const TASKS: usize = 40;
/// The longest that a server with this tick grants: a busy machine must not end sessions.
const SESSION: Duration = Duration::from_secs(4);
/// Within this, after the storm, all that was given up is gone. No test waits for it to pass.
const SOON: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_c6_a_storm_of_cuts_and_cancellations_leaves_nothing_behind() {
    let seed = number("LOCKKIT_TEST_STORM_SEED").unwrap_or_else(rand::random);
    let length = Duration::from_secs(number("LOCKKIT_TEST_STORM_SECONDS").unwrap_or(SECONDS));
    println!("LOCKKIT_TEST_STORM_SEED={seed}, {length:?}");
    let server = ZooKeeperServer::start_with(ZooKeeperOptions::default()).unwrap();
    let tasks_before = Handle::current().metrics().num_alive_tasks();

    let (mut proxies, mut lockers) = (Vec::new(), Vec::new());
    for _ in 0..SESSIONS {
        let proxy = Proxy::start(server.addr()).await.unwrap();
        lockers.push(locker(&proxy).await);
        proxies.push(proxy);
    }
    let (stays, over) = (Arc::new(Stays::default()), Arc::new(AtomicBool::new(false)));
    let users: Vec<_> = (0..TASKS)
        .map(|task| {
            let locker = lockers[task % SESSIONS].clone();
            let chance = Chance::new(seed, task);
            tokio::spawn(user::run(locker, chance, Arc::clone(&stays), Arc::clone(&over)))
        })
        .collect();
    let mut faults = Faults::default();
    let storms =
        (TASKS..).zip(&proxies).map(|(stream, proxy)| chaos(proxy, Chance::new(seed, stream), length));
    for of_one in join_all(storms).await {
        faults += of_one;
    }
    over.store(true, Relaxed);
    let calm = Instant::now();
    let mut tally = Tally::default();
    for user in users {
        tally += user.await.unwrap();
    }
    let verified: usize = stays.lock().unwrap().values().map(Witness::verify).sum();
    println!("{tally}; {faults}; {verified} stays verified; the last task ended {:?} later", calm.elapsed());

    let leaks = async || -> Vec<String> {
        let dump = server.four_letter("dump").unwrap();
        // The nodes that heartbeats write to live as long as their sessions.
        let is_lock = |line: &&str| line.trim().starts_with('/') && !line.contains("/session/");
        let ephemerals = dump.lines().filter(is_lock).count();
        let watches = server.metric("zk_watch_count").unwrap();
        if (ephemerals, watches) == (0, 0) {
            return Vec::new();
        }
        vec![format!("{ephemerals} nodes, {watches} watches\n{dump}")]
    };
    nothing("while the sessions live", leaks).await;
    for locker in &lockers {
        locker.shutdown().await.unwrap();
    }
    drop((lockers, proxies));
    nothing("of the tasks", async || {
        let tasks = Handle::current().metrics().num_alive_tasks();
        (tasks > tasks_before).then(|| format!("{tasks} tasks, {tasks_before} before")).into_iter().collect()
    })
    .await;
    assert!(server.four_letter("wchs").unwrap().contains("Total watches:0"));

    // Of a storm that was none, nothing can be learnt. Losses are rare, and left to chance.
    let seconds = usize::try_from(length.as_secs()).unwrap();
    assert!(
        tally.grants > 5 * seconds && tally.cancellations > 30 * seconds && faults.total() > seconds,
        "too little happened: {tally}; {faults}"
    );
}

/// Waits until nothing is left.
async fn nothing(what: &str, mut left: impl AsyncFnMut() -> Vec<String>) {
    let start = Instant::now();
    loop {
        let left = left().await;
        if left.is_empty() {
            return;
        }
        assert!(start.elapsed() < SOON, "C6: after {SOON:?}, {what}: {left:?}");
        sleep(LOOK_AGAIN).await;
    }
}

async fn locker(proxy: &Proxy) -> Locker {
    let config = Config::new([(proxy.addr().ip().to_string(), proxy.addr().port())]);
    let config = config.with_session_timeout(SESSION).unwrap().with_prefix("storm").unwrap();
    // The store's own queue is what is tested.
    let locker = Locker::new(ZooKeeper::connect(config).await.unwrap()).with_process_gate(false);
    locker.with_defaults(LockOptions::new().with_ttl(SESSION)).unwrap()
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, which is no whole number")))
}
