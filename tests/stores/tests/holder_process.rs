//! C9, C3 and C4 with real processes: one holder is killed, and one is stopped for longer than its
//! lease.
//!
//! The test binary starts itself again as the holder.

use std::{
    any::Any,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit::{LockOptions, Locker, Mutex};
use lockkit_fixture::{
    Peer, SqlFlavor, SqlServer, ZooKeeperOptions, ZooKeeperServer, mysql_is_there, next_line,
    redis_from_env_or_start, role,
};
use nix::sys::signal::Signal;
use tokio::{runtime::Runtime, time::timeout};

/// The lease of the holder, long enough for a holder whose server pauses for seconds.
const TTL: Duration = Duration::from_secs(18);
/// The lease of the other claims, which must not be the reason that a lock becomes free.
const LONG: Duration = Duration::from_secs(60);
/// The bound for events that must happen.
const SOON: Duration = Duration::from_secs(60);
/// A server may pause for seconds.
const PATIENT: &str = "connect_timeout=30s&op_timeout=10s";

fn main() -> Result<(), Failed> {
    if let Some([url]) = role().as_deref() {
        return Ok(Runtime::new()?.block_on(hold(url))?);
    }
    let mut trials = trials("redis", redis);
    trials.extend(self::trials("zookeeper", zookeeper));
    for flavor in [SqlFlavor::MariaDb, SqlFlavor::MySql] {
        if flavor == SqlFlavor::MySql && mysql_is_there().is_err() {
            continue; // the conformance suite says it loudly
        }
        trials.extend(self::trials(&flavor.to_string(), move || sql(flavor, "optimistic")));
        trials.extend(self::trials(&format!("{flavor}-pessimistic"), move || {
            sql(flavor, "pessimistic")
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// A store for one case, which lives as long as this value.
struct Place {
    url: String,
    /// Where leases belong to sessions, the URL asks for them, and not each lock.
    has_sessions: bool,
    _server: Box<dyn Any>,
}

impl Place {
    /// The URL for a client whose locks have this lease.
    fn url(&self, ttl: Duration) -> String {
        match self.has_sessions {
            true => format!("{}&session_timeout={}ms", self.url, ttl.as_millis()),
            false => self.url.clone(),
        }
    }
}

fn redis() -> Result<Place, Failed> {
    let redis = redis_from_env_or_start()?;
    let url = format!("{}?prefix=lockkit-test-{}&{PATIENT}", redis.url, std::process::id());
    Ok(Place { url, has_sessions: false, _server: Box::new(redis) })
}

fn zookeeper() -> Result<Place, Failed> {
    let longest = format!("maxSessionTimeout={}", LONG.as_millis());
    let server = ZooKeeperServer::start_with(ZooKeeperOptions::default().with_config(&longest))?;
    // The longest connect_timeout that a session with the holder's lease allows.
    let url = format!("{}?connect_timeout=4s&op_timeout=10s", server.url());
    Ok(Place { url, has_sessions: true, _server: Box::new(server) })
}

fn sql(flavor: SqlFlavor, strategy: &str) -> Result<Place, Failed> {
    let server = SqlServer::start(flavor)?;
    let url = format!("{}?strategy={strategy}&{PATIENT}", server.url());
    Ok(Place { url, has_sessions: false, _server: Box::new(server) })
}

fn trials(
    store: &str,
    place: impl Fn() -> Result<Place, Failed> + Clone + Send + 'static,
) -> Vec<Trial> {
    let other = place.clone();
    vec![
        Trial::test(format!("{store}::c9_a_killed_holder_is_followed_in_time"), move || {
            run(place()?, killed)
        }),
        Trial::test(
            format!("{store}::c3_c4_a_stopped_holder_knows_at_once_when_it_goes_on"),
            move || run(other()?, stopped),
        ),
    ]
}

/// The holder's process. It takes the lock, prints its token, and answers each line with whether it
/// still holds the lock.
async fn hold(url: &str) -> lockkit::Result<()> {
    let guard = mutex(&connect(url).await?, TTL)?.lock().await?;
    println!("{}", guard.fencing_token());
    // The runtime continues to renew on its other threads.
    tokio::task::block_in_place(|| {
        while next_line().is_some() {
            println!("{}", guard.is_held());
        }
    });
    Ok(())
}

fn mutex(locker: &Locker, ttl: Duration) -> lockkit::Result<Mutex> {
    let options = LockOptions::new().with_ttl(ttl).with_op_timeout(ttl / 3);
    locker.mutex("holder process")?.with_options(options)
}

/// Connects, although the server may pause.
async fn connect(url: &str) -> lockkit::Result<Locker> {
    let start = Instant::now();
    loop {
        match lockkit::connect(url).await {
            Err(error) if error.is_temporary() && start.elapsed() < SOON => {}
            locker => return locker,
        }
    }
}

fn run(
    place: Place,
    case: impl AsyncFn(Locker, Holder) -> Result<(), Failed>,
) -> Result<(), Failed> {
    Runtime::new()?.block_on(async {
        let holder = Holder::start(&place.url(TTL))?;
        let locker = connect(&place.url(LONG)).await?;
        assert!(mutex(&locker, LONG)?.try_lock().await?.is_none(), "the holder lives and renews");
        case(locker.clone(), holder).await?;
        Ok(locker.shutdown().await?)
    })
}

async fn killed(locker: Locker, holder: Holder) -> Result<(), Failed> {
    let observer = mutex(&locker, LONG)?;
    let waiter = mutex(&locker, LONG)?;
    let waiter = tokio::spawn(async move { waiter.lock().await });
    // Where the store has leases, a renewal must come first: then the waiter waits for a renewed
    // lease and not for the first one.
    let renewed = async {
        let mut least = Duration::MAX;
        loop {
            let seen = observer.inspect().await?;
            let [holder] = &seen.holders[..] else { return Err(format!("{seen:?}").into()) };
            match holder.remaining {
                Some(left) if left <= least => least = left,
                _ => return Ok::<_, Failed>(()),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, renewed).await.map_err(|_| "the holder does not renew")??;
    assert!(!waiter.is_finished(), "the holder lives and renews");
    let start = Instant::now();
    holder.process.signal(Signal::SIGKILL)?;
    let guard = timeout(SOON, waiter).await.map_err(|_| "the dead one keeps the lock")???;
    println!("granted {:?} after the kill, ttl {TTL:?}", start.elapsed());
    assert!(guard.fencing_token().get() > holder.token, "the token must rise");
    guard.release().await?;
    Ok(())
}

async fn stopped(locker: Locker, mut holder: Holder) -> Result<(), Failed> {
    holder.process.signal(Signal::SIGSTOP)?;
    let guard = timeout(SOON, mutex(&locker, LONG)?.lock()).await.map_err(|_| "it holds on")??;
    assert!(guard.fencing_token().get() > holder.token, "the token must rise");
    holder.process.signal(Signal::SIGCONT)?;
    holder.process.tell("")?;
    assert_eq!(
        holder.process.hear()?,
        "false",
        "the stopped holder must know at once that it lost the lock"
    );
    // A faulty keeper would renew within this time.
    tokio::time::sleep(TTL / 2).await;
    guard.renew().await?; // the past holder's keeper must not touch the present grant
    guard.release().await?;
    Ok(())
}

/// A process that holds the lock.
struct Holder {
    process: Peer,
    token: u64,
}

impl Holder {
    fn start(url: &str) -> Result<Self, Failed> {
        let process = Peer::start(url)?;
        let token = process.hear()?.parse()?;
        Ok(Self { process, token })
    }
}
