//! C9, C3 and C4 with real processes: a holder that is killed, and one that is stopped past its lease.
//!
//! The test binary starts itself again as the holder.

use std::{
    any::Any,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit::{LockOptions, Locker, Mutex, Released};
use lockkit_conformance::StallMeter;
use lockkit_fixture::{
    Peer, SqlFlavor, SqlServer, ZooKeeperOptions, ZooKeeperServer, mysql_is_there, next_line,
    redis_from_env_or_start, role, slack,
};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_secs(1);
/// How many times longer the lease becomes at most, if the machine was too slow for a shorter one.
const MOST: u32 = 8;
/// Of the waiter. Lost by no stall, and not what frees a lock in time.
const LONG: Duration = Duration::from_secs(30);

fn main() -> Result<(), Failed> {
    if let Some([url, ttl]) = role().as_deref() {
        let ttl = Duration::from_millis(ttl.parse()?);
        return Ok(Runtime::new()?.block_on(hold(url, ttl))?);
    }
    let mut trials = trials("redis", redis);
    trials.extend(self::trials("zookeeper", zookeeper));
    for flavor in [SqlFlavor::MariaDb, SqlFlavor::MySql] {
        if flavor == SqlFlavor::MySql && mysql_is_there().is_err() {
            continue; // the conformance suite says it loudly
        }
        trials.extend(self::trials(&flavor.to_string(), move || sql(flavor, "optimistic")));
        trials.extend(self::trials(&format!("{flavor}-pessimistic"), move || sql(flavor, "pessimistic")));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A store for one case, for as long as the value lives.
struct Place {
    url: String,
    /// Where leases are those of sessions, they are asked for in the URL, and not by each lock.
    has_sessions: bool,
    _server: Box<dyn Any>,
}

impl Place {
    /// Where a client connects that holds with this lease.
    fn url(&self, ttl: Duration) -> String {
        match self.has_sessions {
            true => format!("{}?session_timeout={}ms", self.url, ttl.as_millis()),
            false => self.url.clone(),
        }
    }
}

fn redis() -> Result<Place, Failed> {
    let redis = redis_from_env_or_start()?;
    let url = format!("{}?prefix=lockkit-test-{}", redis.url, std::process::id());
    Ok(Place { url, has_sessions: false, _server: Box::new(redis) })
}

fn zookeeper() -> Result<Place, Failed> {
    let longest = format!("maxSessionTimeout={}", LONG.as_millis());
    let server = ZooKeeperServer::start_with(ZooKeeperOptions::default().with_config(&longest))?;
    Ok(Place { url: server.url(), has_sessions: true, _server: Box::new(server) })
}

fn sql(flavor: SqlFlavor, strategy: &str) -> Result<Place, Failed> {
    let server = SqlServer::start(flavor)?;
    let url = format!("{}?strategy={strategy}", server.url());
    Ok(Place { url, has_sessions: false, _server: Box::new(server) })
}

fn trials(store: &str, place: impl Fn() -> Result<Place, Failed> + Clone + Send + 'static) -> Vec<Trial> {
    let other = place.clone();
    vec![
        Trial::test(format!("{store}::c9_a_killed_holder_is_followed_in_time"), move || {
            run(place()?, killed)
        }),
        Trial::test(format!("{store}::c3_c4_a_stopped_holder_knows_at_once_when_it_goes_on"), move || {
            run(other()?, stopped)
        }),
    ]
}

/// The holder's side: takes the lock, tells its token and what the store may take beyond its lease, and answers each line
/// with whether it still holds it.
async fn hold(url: &str, ttl: Duration) -> lockkit::Result<()> {
    let locker = lockkit::connect(url).await?;
    let guard = mutex(&locker, ttl)?.lock().await?;
    println!("{} {}", guard.fencing_token(), locker.descriptor().takeover_delay.as_millis());
    // The runtime goes on renewing on its other threads.
    tokio::task::block_in_place(|| {
        while next_line().is_some() {
            println!("{}", guard.is_held());
        }
    });
    Ok(())
}

fn mutex(locker: &Locker, ttl: Duration) -> lockkit::Result<Mutex> {
    locker.mutex("holder process")?.with_options(LockOptions::new().with_ttl(ttl))
}

/// What became of the live holder.
#[must_use]
enum Holds {
    On,
    /// It lost its lease; with the slowest answer of the store.
    NoMore(Duration),
}

/// A holder that lives and loses its lease fails the case, unless the machine or the store stood still for so long that
/// any holder may: then there is another turn, with a lease of twice the length.
fn run(place: Place, case: impl AsyncFn(Locker, Holder) -> Result<Holds, Failed>) -> Result<(), Failed> {
    Runtime::new()?.block_on(async {
        let mut times = 1;
        loop {
            let meter = StallMeter::start();
            let holder = Holder::start(&place, TTL * times)?;
            let locker = lockkit::connect(&place.url(LONG)).await?;
            let asked = Instant::now();
            let holds = match mutex(&locker, LONG)?.try_lock().await? {
                None => case(locker.clone(), holder).await?,
                Some(_) => Holds::NoMore(asked.elapsed()),
            };
            locker.shutdown().await?;
            let Holds::NoMore(slowest) = holds else { return Ok(()) };
            let (ttl, stall) = (TTL * times, meter.longest());
            println!("a lease of {ttl:?} was lost; a stall of {stall:?}, an answer of {slowest:?}");
            assert!(stall + slowest >= ttl / 6 && times < MOST, "the holder lives and renews");
            times *= 2;
        }
    })
}

async fn killed(locker: Locker, holder: Holder) -> Result<Holds, Failed> {
    let ttl = holder.ttl;
    let (observer, waiter) = (mutex(&locker, LONG)?, mutex(&locker, LONG)?);
    let waiter = tokio::spawn(async move { waiter.lock().await });
    // Renewed meanwhile, so that the wait is for a live lease and not for the first one.
    let (start, mut slowest) = (Instant::now(), Duration::ZERO);
    while start.elapsed() < ttl * 2 {
        let asked = Instant::now();
        observer.inspect().await?;
        slowest = slowest.max(asked.elapsed());
        if waiter.is_finished() {
            drop(waiter.await??);
            return Ok(Holds::NoMore(slowest));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let start = Instant::now();
    holder.process.signal(Signal::SIGKILL)?;
    let guard = waiter.await??;
    let took = start.elapsed();
    println!("granted {took:?} after the kill, ttl {ttl:?}");
    let bound = ttl + holder.takeover_delay + slack();
    assert!(took <= bound, "granted only {took:?} after the kill");
    assert!(guard.fencing_token().get() > holder.token, "the token must rise");
    assert_eq!(guard.release().await?, Released::Freed);
    Ok(Holds::On)
}

async fn stopped(locker: Locker, mut holder: Holder) -> Result<Holds, Failed> {
    holder.process.signal(Signal::SIGSTOP)?;
    let guard = mutex(&locker, LONG)?.lock().await?;
    assert!(guard.fencing_token().get() > holder.token, "the token must rise");
    holder.process.signal(Signal::SIGCONT)?;
    holder.process.tell("")?;
    assert_eq!(holder.process.hear()?, "false", "the stopped holder must know at once that it lost the lock");
    tokio::time::sleep(TTL * 2).await;
    guard.renew().await?; // the past holder's keeper must not touch the present grant
    assert_eq!(guard.release().await?, Released::Freed);
    Ok(Holds::On)
}

/// A process that holds the lock.
struct Holder {
    process: Peer,
    token: u64,
    ttl: Duration,
    takeover_delay: Duration,
}

impl Holder {
    fn start(place: &Place, ttl: Duration) -> Result<Self, Failed> {
        let process = Peer::start(&format!("{} {}", place.url(ttl), ttl.as_millis()))?;
        let told = process.hear()?;
        let (token, delay) = told.split_once(' ').ok_or("the holder told no delay")?;
        let takeover_delay = Duration::from_millis(delay.parse()?);
        Ok(Self { process, token: token.parse()?, ttl, takeover_delay })
    }
}
