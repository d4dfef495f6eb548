//! Locks in ZooKeeper against the same work through the bare client, in turn; then contention and idle locks. On a
//! server that keeps its data in memory, and on one that writes to disk before it answers.

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
use support::{bare::Bare, contended, figures::Figures, held};

const ROUNDS: usize = 9;

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

async fn own_names(fair: &Locker, unfair: &Locker, bare: &Bare) {
    for (tasks, each) in [(1, 1_500), (64, 100)] {
        let mut rates = [const { Figures::new() }; 4];
        for _ in 0..ROUNDS {
            rates[0].push(rate(tasks, each, |name| lockkit_pairs(fair.clone(), name, each)).await);
            rates[1].push(rate(tasks, each, |name| bare.clone().pairs(name, each, false)).await);
            rates[2].push(rate(tasks, each, |name| bare.clone().pairs(name, each, true)).await);
            rates[3].push(rate(tasks, each, |name| lockkit_pairs(unfair.clone(), name, each)).await);
        }
        println!("{tasks} tasks, each on its own name, one session:");
        let names = ["fair", "bare client, exists", "bare client, list", "unfair"];
        for (what, rates) in names.into_iter().zip(&rates) {
            println!("  {what:<24} {} pairs/s", rates.show(0));
        }
        println!("  fair / bare, exists      {:.2}", rates[0].median() / rates[1].median());
        println!("  fair / bare, list        {:.2}", rates[0].median() / rates[2].median());
    }
}

async fn all(server: &ZooKeeperServer) {
    let (fair, unfair) = (locker(server, "fair", false).await, locker(server, "unfair", true).await);
    let bare = Bare::open(server).await;
    own_names(&fair, &unfair, &bare).await;
    contended::one_name(server, &fair, &unfair, &bare).await;
    contended::tries(server, &fair, &unfair).await;
    held::idle(server, &locker(server, "held", false).await).await;
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    // Sessions last as long as in production.
    let options = ZooKeeperOptions::default().with_tick(Duration::from_secs(1));
    for (what, options) in [("in memory", options.clone()), ("on disk", options.with_durable())] {
        let server = ZooKeeperServer::start_with(options).unwrap();
        println!("== data {what}");
        runtime.block_on(all(&server));
    }
}
