//! C9, C3 and C4 with real processes: a holder that is killed, and one that is stopped past its lease.
//!
//! The test binary starts itself again as the holder; a variable with the store's URL tells it so.

use std::{
    any::Any,
    env,
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use lockkit::{LockGuard, LockOptions, Locker, Mutex, Released};
use lockkit_fixture::{SqlFlavor, SqlServer, mysql_is_there, redis_from_env_or_start};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::runtime::Runtime;

const HOLDER_URL: &str = "LOCKKIT_HOLDER_URL";
const TTL: Duration = Duration::from_secs(1);
/// The bound of C9 on a machine that does nothing else, and what a busy one needs more.
const TAKEOVER: Duration = Duration::from_millis(250);

fn main() -> Result<(), Failed> {
    if let Ok(url) = env::var(HOLDER_URL) {
        return Ok(Runtime::new()?.block_on(hold(&url))?);
    }
    let mut trials = trials("redis", redis);
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
    _server: Box<dyn Any>,
}

fn redis() -> Result<Place, Failed> {
    let redis = redis_from_env_or_start()?;
    let url = format!("{}?prefix=lockkit-test-{}", redis.url, std::process::id());
    Ok(Place { url, _server: Box::new(redis) })
}

fn sql(flavor: SqlFlavor, strategy: &str) -> Result<Place, Failed> {
    let server = SqlServer::start(flavor)?;
    Ok(Place { url: format!("{}?strategy={strategy}", server.url()), _server: Box::new(server) })
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

/// The holder's side: takes the lock, tells its token, and answers each line with whether it still holds it.
async fn hold(url: &str) -> lockkit::Result<()> {
    let guard = mutex(&lockkit::connect(url).await?)?.lock().await?;
    println!("{}", guard.fencing_token());
    // The runtime goes on renewing on its other threads.
    tokio::task::block_in_place(|| {
        for _ in std::io::stdin().lines() {
            println!("{}", guard.is_held());
        }
    });
    Ok(())
}

fn mutex(locker: &Locker) -> lockkit::Result<Mutex> {
    locker.mutex("holder process")?.with_options(LockOptions::new().with_ttl(TTL))
}

fn run(place: Place, case: impl AsyncFn(Locker, Holder) -> Result<(), Failed>) -> Result<(), Failed> {
    Runtime::new()?.block_on(async {
        let holder = Holder::start(&place.url)?;
        let locker = lockkit::connect(&place.url).await?;
        assert!(mutex(&locker)?.try_lock().await?.is_none(), "the holder process holds it");
        case(locker.clone(), holder).await?;
        Ok(locker.shutdown().await?)
    })
}

async fn killed(locker: Locker, mut holder: Holder) -> Result<(), Failed> {
    let waiter = spawn_waiter(&locker)?;
    // Renewed meanwhile, so that the wait is for a live lease and not for the first one.
    tokio::time::sleep(TTL * 2).await;
    assert!(!waiter.is_finished(), "the holder lives and renews");
    let start = Instant::now();
    holder.process.kill()?;
    let guard = waiter.await??;
    let took = start.elapsed();
    println!("granted {took:?} after the kill, ttl {TTL:?}");
    let bound = TTL + locker.descriptor().takeover_delay + TAKEOVER * slack();
    assert!(took <= bound, "granted only {took:?} after the kill");
    assert!(guard.fencing_token().get() > holder.token, "the token must rise");
    assert_eq!(guard.release().await?, Released::Freed);
    Ok(())
}

async fn stopped(locker: Locker, mut holder: Holder) -> Result<(), Failed> {
    holder.signal(Signal::SIGSTOP)?;
    let guard = mutex(&locker)?.lock().await?;
    assert!(guard.fencing_token().get() > holder.token, "the token must rise");
    holder.signal(Signal::SIGCONT)?;
    assert_eq!(holder.ask()?, "false", "the stopped holder must know at once that it lost the lock");
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held(), "the past holder's keeper must not touch the present grant");
    assert_eq!(guard.release().await?, Released::Freed);
    Ok(())
}

fn spawn_waiter(locker: &Locker) -> Result<tokio::task::JoinHandle<lockkit::Result<LockGuard>>, Failed> {
    let mutex = mutex(locker)?;
    Ok(tokio::spawn(async move { mutex.lock().await }))
}

/// `LOCKKIT_TEST_SLACK` stretches bounds on slow machines.
fn slack() -> u32 {
    env::var("LOCKKIT_TEST_SLACK").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// A process that holds the lock; killed when dropped.
struct Holder {
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    token: u64,
}

impl Holder {
    fn start(url: &str) -> Result<Self, Failed> {
        let mut process = Command::new(env::current_exe()?)
            .env(HOLDER_URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take().ok_or("no stdin")?;
        let mut lines = BufReader::new(process.stdout.take().ok_or("no stdout")?).lines();
        let token = lines.next().ok_or("the holder process ended early")??.parse()?;
        Ok(Self { process, stdin, lines, token })
    }

    fn ask(&mut self) -> Result<String, Failed> {
        writeln!(self.stdin)?;
        Ok(self.lines.next().ok_or("the holder process ended early")??)
    }

    fn signal(&self, signal: Signal) -> Result<(), Failed> {
        Ok(kill(Pid::from_raw(self.process.id().try_into()?), signal)?)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
