//! Locks in ZooKeeper against the same work through the bare client, in turn; then contention and idle locks. On a
//! server that keeps its data in memory, and on one that writes to disk before it answers.
//!
//! `cargo bench -p lockkit-zk -- memory own-names` runs a part of it: `memory` or `disk`, and `own-names`, `one-name`,
//! `tries` or `held`.

mod support {
    pub(crate) mod bare;
    pub(crate) mod contended;
    pub(crate) mod figures;
    pub(crate) mod held;
}

use std::time::{Duration, Instant};

use lockkit_core::{Locker, url::StoreUrl};
use lockkit_fixture::{ZooKeeperOptions, ZooKeeperServer};
use lockkit_zk::{Config, ZooKeeper};
use support::{
    bare::Bare,
    contended,
    figures::{Figures, cpu_time, float, requests},
    held,
};

/// Short and many: whatever else runs on the machine then slows all of them down alike.
const ROUNDS: usize = 31;
const PARTS: [&str; 4] = ["own-names", "one-name", "tries", "held"];
const STORES: [&str; 2] = ["memory", "disk"];

async fn locker(server: &ZooKeeperServer, prefix: &str, unfair: bool) -> Locker {
    let config = Config::from_url(StoreUrl::parse(&server.url()).unwrap()).unwrap();
    let mut config = config.with_prefix(prefix).unwrap();
    if unfair {
        config = config.with_unfair_mutexes();
    }
    Locker::new(ZooKeeper::connect(config).await.unwrap())
}

async fn lockkit_pairs(locker: Locker, name: String, count: usize) {
    let mutex = locker.mutex(&name).unwrap();
    for _ in 0..count {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
}

/// Pairs per second with `tasks` tasks, each on a name of its own.
async fn rate<F>(tasks: usize, each: usize, work: impl Fn(String) -> F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let start = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task.to_string()))).collect();
    for task in running {
        task.await.unwrap();
    }
    f64::from(u32::try_from(tasks * each).unwrap()) / start.elapsed().as_secs_f64()
}

/// Whether a part is to be run: it is named, or none of its kind is.
fn is_wanted(part: &str, kind: &[&str]) -> bool {
    let named: Vec<_> = std::env::args().skip(1).filter(|word| kind.contains(&word.as_str())).collect();
    named.is_empty() || named.iter().any(|word| word == part)
}

async fn own_names(server: &ZooKeeperServer, fair: &Locker, unfair: &Locker, bare: &Bare) {
    for (tasks, each) in [(1, 300), (64, 20)] {
        let pairs = float((tasks * each).try_into().unwrap());
        let mut rates = [const { Figures::new() }; 4];
        let mut used = [Duration::ZERO; 4];
        let [mut to_exists, mut to_list, mut asked] = [const { Figures::new() }; 3];
        // The first round is for the server, which compiles itself, and for the folders.
        for round in 0..=ROUNDS {
            let mut rate_of = [0.0; 4];
            let mut used_by = [Duration::ZERO; 4];
            let before = requests(server);
            for (at, rate_of) in rate_of.iter_mut().enumerate() {
                let cpu = cpu_time("self");
                *rate_of = match at {
                    0 => rate(tasks, each, |name| lockkit_pairs(fair.clone(), name, each)).await,
                    1 => rate(tasks, each, |name| bare.clone().pairs(name, each, false)).await,
                    2 => rate(tasks, each, |name| bare.clone().pairs(name, each, true)).await,
                    _ => rate(tasks, each, |name| lockkit_pairs(unfair.clone(), name, each)).await,
                };
                used_by[at] = cpu_time("self") - cpu;
                if round > 0 && at == 0 {
                    asked.push(float(requests(server) - before) / pairs);
                }
            }
            if round > 0 {
                to_exists.push(rate_of[0] / rate_of[1]);
                to_list.push(rate_of[0] / rate_of[2]);
                for at in 0..4 {
                    rates[at].push(rate_of[at]);
                    used[at] += used_by[at];
                }
            }
        }
        println!("{tasks} tasks, each on its own name, one session:");
        let names = ["fair", "bare client, exists", "bare client, list", "unfair"];
        for (at, what) in names.into_iter().enumerate() {
            let cpu = used[at].as_secs_f64() * 1e6 / pairs / float(ROUNDS.try_into().unwrap());
            println!("  {what:<24} {} pairs/s; {cpu:.0} µs of client CPU per pair", rates[at].show(0));
        }
        println!("  requests per pair, fair  {}", asked.show(2));
        println!("  fair / bare, exists      {}", to_exists.show(2));
        println!("  fair / bare, list        {}", to_list.show(2));
    }
}

async fn all(server: &ZooKeeperServer) {
    let (fair, unfair) = (locker(server, "fair", false).await, locker(server, "unfair", true).await);
    let bare = Bare::open(server).await;
    if is_wanted("own-names", &PARTS) {
        own_names(server, &fair, &unfair, &bare).await;
    }
    if is_wanted("one-name", &PARTS) {
        contended::one_name(server, &fair, &unfair, &bare).await;
    }
    if is_wanted("tries", &PARTS) {
        contended::tries(server, &fair, &unfair).await;
    }
    if is_wanted("held", &PARTS) {
        held::idle(server, &locker(server, "held", false).await).await;
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Sessions last as long as in production.
    let options = ZooKeeperOptions::default().with_tick(Duration::from_secs(1));
    for (what, options) in [("memory", options.clone()), ("disk", options.with_durable())] {
        if !is_wanted(what, &STORES) {
            continue;
        }
        let server = ZooKeeperServer::start_with(options).unwrap();
        println!("== data: {what}");
        runtime.block_on(all(&server));
    }
}
