//! Compares mutexes on ZooKeeper with Curator's InterProcessMutex on the same server, in turn.
//!
//! `cargo bench -p lockkit-zk --bench curator` measures a server that leaves its log to the kernel,
//! and then a server that writes each transaction to the disk first. Both libraries use one
//! process and one session. `--quick` takes few rounds: enough to see that it runs.

mod support {
    pub(crate) mod curator;
}

use std::{
    env,
    time::{Duration, Instant},
};

use lockkit_core::{Locker, url::StoreUrl};
use lockkit_fixture::{ZooKeeperOptions, ZooKeeperServer};
use lockkit_zk::{Config, ZooKeeper};
use support::curator::Curator;
use tokio::{task::JoinSet, time::sleep};

const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
const SLICE: Duration = Duration::from_millis(500);
const WAITERS: usize = 1_000;
/// Java compiles the code that runs often while it runs.
const WARM_UP: Duration = Duration::from_secs(10);
/// The tests let Java start fast, by code that is compiled quickly and badly.
const FULL_COMPILER: &str = "-XX:TieredStopAtLevel=4";

#[tokio::main]
async fn main() {
    let is_quick = env::args().any(|word| word == "--quick");
    let rounds = if is_quick { 2 } else { 11 };
    for (durability, options) in [
        ("relaxed", ZooKeeperOptions::default()),
        ("durable", ZooKeeperOptions::default().with_durable()),
    ] {
        println!("\n== {durability}");
        let options = options.with_java("-Xmx512m").with_java(FULL_COMPILER);
        let server = ZooKeeperServer::start_with(options).unwrap();
        let mut curator = match Curator::start(&server.addr().to_string(), SESSION_TIMEOUT) {
            Ok(curator) => curator,
            Err(reason) => {
                println!("Curator is not measured: {reason}");
                return;
            }
        };
        let config = Config::from_url(StoreUrl::parse(&server.url()).unwrap()).unwrap();
        let config = config.with_session_timeout(SESSION_TIMEOUT).unwrap();
        let locker = Locker::new(ZooKeeper::connect(config).await.unwrap());
        curator.pairs(8, WARM_UP, "own");
        for (what, tasks, names) in
            [("1 task", 1, "own"), ("64 names", 64, "own"), ("64 tasks, one name", 64, "hot")]
        {
            let mut sides = [Vec::new(), Vec::new()];
            // The first round makes the folders.
            for round in 0..=rounds {
                let ours = pairs(&locker, tasks, names).await;
                let theirs = curator.pairs(tasks, SLICE, names);
                if round > 0 {
                    sides[0].push(ours);
                    sides[1].push(theirs);
                }
            }
            show(what, "pairs/s", &sides, |ours, theirs| ours / theirs);
        }
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..rounds.min(5) {
            sides[0].push(crowd(&locker).await);
            sides[1].push(curator.crowd(WAITERS));
        }
        show("1,000 waiters", "s until all were served", &sides, |ours, theirs| theirs / ours);
        locker.shutdown().await.unwrap();
    }
}

/// Pairs per second of so many tasks.
async fn pairs(locker: &Locker, tasks: usize, names: &str) -> f64 {
    let start = Instant::now();
    let until = start + SLICE;
    let mut running = JoinSet::new();
    for number in 0..tasks {
        let name = if names == "own" { format!("own-{number}") } else { "hot".to_owned() };
        let mutex = locker.mutex(&name).unwrap();
        running.spawn(async move {
            let mut pairs = 0_u32;
            while Instant::now() < until {
                mutex.lock().await.unwrap().release().await.unwrap();
                pairs += 1;
            }
            pairs
        });
    }
    let pairs: u32 = running.join_all().await.into_iter().sum();
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

/// In how many seconds a lock that is freed serves 1,000 waiters.
async fn crowd(locker: &Locker) -> f64 {
    let holder = locker.mutex("crowd").unwrap().lock().await.unwrap();
    let mut waiters = JoinSet::new();
    for _ in 0..WAITERS {
        let mutex = locker.mutex("crowd").unwrap();
        waiters.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
    }
    // Long enough for all tasks to wait in line.
    sleep(SLICE).await;
    let start = Instant::now();
    holder.release().await.unwrap();
    waiters.join_all().await;
    start.elapsed().as_secs_f64()
}

/// Prints the medians, and the median and the range of the ratios.
fn show(what: &str, unit: &str, [ours, theirs]: &[Vec<f64>; 2], ratio: fn(f64, f64) -> f64) {
    let ratios: Vec<_> =
        ours.iter().zip(theirs).map(|(ours, theirs)| ratio(*ours, *theirs)).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    println!(
        "{what:<20} lockkit {:.2}, Curator {:.2} {unit}; {:.2} ({least:.2} to {most:.2}) times as fast",
        median(ours),
        median(theirs),
        median(&ratios)
    );
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
