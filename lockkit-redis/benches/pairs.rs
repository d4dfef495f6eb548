//! Acquire and release through the backend, against the same two scripts through the bare client, in turn; and many
//! tasks on one name.

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::{
    Kind, LockName, Locker, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, Mode, Wait},
    url::StoreUrl,
};
use lockkit_fixture::RedisServer;
use lockkit_redis::{
    Config, Redis,
    redis::{
        self, AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo as _, Script,
        aio::MultiplexedConnection, io::tcp::TcpSettings,
    },
};

const ROUNDS: usize = 9;
macro_rules! script {
    ($($part:literal),+) => {
        concat!($(include_str!(concat!("../src/scripts/exclusive/", $part, ".lua"))),+)
    };
}

const ACQUIRE: &str = script!("acquire_free", "../clock", "hand_over", "acquire");
const RELEASE: &str = script!("release_free", "../clock", "hand_over", "release");

/// The floor: no more than two EVALSHA, with everything prepared.
#[derive(Clone)]
struct Bare {
    connection: MultiplexedConnection,
    acquire: String,
    release: String,
}

impl Bare {
    async fn open(server: &RedisServer, nodelay: bool) -> Self {
        let address = ConnectionAddr::Tcp("127.0.0.1".to_owned(), server.port());
        let info = address.into_connection_info().unwrap();
        let client =
            Client::open(info.set_tcp_settings(TcpSettings::default().set_nodelay(nodelay))).unwrap();
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let (acquire, release) = (Script::new(ACQUIRE), Script::new(RELEASE));
        acquire.load_async(&mut connection).await.unwrap();
        release.load_async(&mut connection).await.unwrap();
        let hash = |script: &Script| script.get_hash().to_owned();
        Self { connection, acquire: hash(&acquire), release: hash(&release) }
    }

    async fn pairs(mut self, name: String, count: usize) {
        let lock = format!("bare:{{{name}}}");
        let keys = [lock.clone(), format!("{lock}:fence"), format!("{lock}:queue"), format!("{lock}:live")];
        let owner = OwnerId::random().to_string();
        let mut acquire = redis::cmd("EVALSHA");
        acquire.arg(&self.acquire).arg(4).arg(&keys).arg(&owner).arg(30_000).arg(9_007_199_254_740_991_i64);
        acquire.arg("").arg(1).arg(6_000).arg("PUBLISH").arg("bare:wake:");
        let mut release = redis::cmd("EVALSHA");
        release
            .arg(&self.release)
            .arg(4)
            .arg(&keys)
            .arg(&owner)
            .arg("")
            .arg(0)
            .arg("PUBLISH")
            .arg("bare:wake:");
        for _ in 0..count {
            black_box(self.connection.send_packed_command(&acquire).await.unwrap());
            black_box(self.connection.send_packed_command(&release).await.unwrap());
        }
    }
}

async fn backend_pairs(redis: &Redis, name: String, count: usize) {
    let name = LockName::new(Kind::Mutex, &name).unwrap();
    let (ttl, op_timeout) = (Duration::from_secs(30), Duration::from_secs(3));
    for _ in 0..count {
        let spec = ClaimSpec::new(name.clone(), OwnerId::random(), Mode::Exclusive, ttl, op_timeout);
        let mut claim = redis.claim(spec).unwrap();
        assert!(matches!(claim.attempt(Wait::Queue).await.unwrap(), Attempt::Granted(_)));
        claim.release().await.unwrap();
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
    let pairs = u32::try_from(tasks * each).unwrap();
    f64::from(pairs) / start.elapsed().as_secs_f64()
}

/// The median, and the range.
fn middle(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    format!("{:.2} ({:.2} to {:.2})", values[values.len() / 2], values[0], values[values.len() - 1])
}

async fn own_names(server: &RedisServer, redis: &Arc<Redis>) {
    let (bare, nagle) = (Bare::open(server, true).await, Bare::open(server, false).await);
    for (tasks, each) in [(1, 6_000), (64, 400)] {
        let [mut rates, mut ratios, mut nodelay] = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            let ours = rate(tasks, each, |name| {
                let redis = Arc::clone(redis);
                async move { backend_pairs(&redis, name, each).await }
            });
            let ours = ours.await;
            let floor = rate(tasks, each, |name| bare.clone().pairs(name, each)).await;
            let other = rate(tasks, each, |name| nagle.clone().pairs(name, each)).await;
            rates.push(ours);
            ratios.push(ours / floor);
            nodelay.push(other / floor);
        }
        println!("{tasks} tasks, each on its own name:");
        println!("  pairs/s                             {}", middle(rates));
        println!("  of the same scripts, bare client    {}", middle(ratios));
        println!("  bare, TCP_NODELAY off, of that      {}", middle(nodelay));
    }
}

/// One name for 64 tasks of one process, each as often as the others wish.
async fn one_name(server: &RedisServer, locker: &Locker, hold: Duration) {
    const TASKS: usize = 64;
    let [mut rates, mut requests, mut shares] = [const { Vec::new() }; 3];
    let mut waits = Vec::new();
    for _ in 0..ROUNDS {
        let before = calls(server);
        let end = Instant::now() + Duration::from_secs(1);
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let mutex = locker.mutex("hot").unwrap();
                tokio::spawn(async move {
                    let mut waited = Vec::new();
                    while Instant::now() < end {
                        let asked = Instant::now();
                        let guard = mutex.lock().await.unwrap();
                        waited.push(asked.elapsed().as_secs_f64() * 1e3);
                        if !hold.is_zero() {
                            tokio::time::sleep(hold).await;
                        }
                        guard.release().await.unwrap();
                    }
                    waited
                })
            })
            .collect();
        let (mut grants, mut most, mut least) = (0.0, 0.0_f64, f64::MAX);
        for task in tasks {
            let waited = task.await.unwrap();
            let share = f64::from(u32::try_from(waited.len()).unwrap());
            (grants, most, least) = (grants + share, most.max(share), least.min(share));
            waits.extend(waited);
        }
        rates.push(grants);
        requests.push((calls(server) - before) / grants);
        shares.push(most / least);
    }
    waits.sort_by(f64::total_cmp);
    println!("{TASKS} tasks on one name, held for {hold:?}:");
    println!("  grants/s                            {}", middle(rates));
    println!("  requests per grant                  {}", middle(requests));
    println!("  most served / least served          {}", middle(shares));
    println!(
        "  wait p50, p99, ms                   {:.1}, {:.1}",
        waits[waits.len() / 2],
        waits[waits.len() * 99 / 100]
    );
}

/// How many requests the server has had.
fn calls(server: &RedisServer) -> f64 {
    let stats = server.ask(["INFO", "commandstats"]).unwrap().text();
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let counts = ["evalsha", "eval", "subscribe", "unsubscribe"].contains(&name);
        rest.split(',').next()?.parse::<f64>().ok().filter(|_| counts)
    };
    stats.lines().filter_map(calls).sum()
}

fn main() {
    let server = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let config = Config::from_url(StoreUrl::parse(&server.url()).unwrap()).unwrap();
        let redis = Arc::new(Redis::connect(config.clone()).await.unwrap());
        own_names(&server, &redis).await;
        let locker = Locker::new(Redis::connect(config).await.unwrap());
        for hold in [0, 2] {
            one_name(&server, &locker, Duration::from_millis(hold)).await;
        }
    });
}
