//! Acquire and release through the backend, against the same two scripts through the bare client, in turn.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use lockkit_core::{
    Kind, LockName, OwnerId,
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

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn line(what: &str, rates: &mut [f64]) -> f64 {
    let middle = median(rates);
    println!("  {what:<22} {middle:>8.0} pairs/s ({:.0} to {:.0})", rates[0], rates[rates.len() - 1]);
    middle
}

fn main() {
    let server = RedisServer::start().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let redis =
            Redis::connect(Config::from_url(StoreUrl::parse(&server.url()).unwrap()).unwrap()).await.unwrap();
        let redis = std::sync::Arc::new(redis);
        let (bare, nagle) = (Bare::open(&server, true).await, Bare::open(&server, false).await);
        for (tasks, each) in [(1, 6_000), (64, 400)] {
            let mut rates = [const { Vec::new() }; 3];
            for _ in 0..ROUNDS {
                let ours = rate(tasks, each, |name| {
                    let redis = redis.clone();
                    async move { backend_pairs(&redis, name, each).await }
                });
                rates[0].push(ours.await);
                rates[1].push(rate(tasks, each, |name| bare.clone().pairs(name, each)).await);
                rates[2].push(rate(tasks, each, |name| nagle.clone().pairs(name, each)).await);
            }
            println!("{tasks} tasks, each on its own name:");
            let ours = line("backend", &mut rates[0]);
            let floor = line("bare client", &mut rates[1]);
            line("bare, TCP_NODELAY off", &mut rates[2]);
            println!("  backend / bare         {:>8.2}", ours / floor);
        }
    });
}
