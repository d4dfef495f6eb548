//! A holder in a process of its own, which is killed, and one that is stopped past its lease.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use lockkit_core::{LockGuard, LockOptions, Locker, Released, url::StoreUrl};
use lockkit_fixture::{Peer, ZooKeeperOptions, ZooKeeperServer};
use lockkit_zk::{Config, ZooKeeper};
use nix::sys::signal::Signal;
use tokio::{runtime::Runtime, time::sleep};

use crate::support::{SOON, contend, mutex, slack, within};

/// Makes this program the holder.
pub(crate) const HOLDER_URL: &str = "LOCKKIT_HOLDER_URL";
const NAME: &str = "holder process";
const SESSION: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(500);
/// For the deletion and the wake-up, on a machine that does nothing else.
const TAKEOVER: Duration = Duration::from_millis(250);
const KILLS: usize = 3;

/// The holder's side: takes the lock, tells its token, and answers each line with whether it still holds it.
pub(crate) fn hold(url: &str) -> Result<(), Failed> {
    Runtime::new()?.block_on(async {
        let guard = mutex(&connect(url).await?, NAME)?.lock().await?;
        println!("{}", guard.fencing_token());
        // The runtime goes on with its heartbeats on its other threads.
        tokio::task::block_in_place(|| {
            for _ in std::io::stdin().lines() {
                println!("{}", guard.is_held());
            }
        });
        Ok(())
    })
}

pub(crate) async fn killed() -> Result<(), Failed> {
    let server = start()?;
    let url = url(&server);
    let locker = connect(&url).await?;
    for _ in 0..KILLS {
        let holder = Holder::start(&url)?;
        let waiter = waiting(&locker).await?;
        // Longer than a session without heartbeats lasts.
        sleep(SESSION + TICK * 2).await;
        assert!(!waiter.is_finished(), "the holder lives");
        let start = Instant::now();
        holder.process.signal(Signal::SIGKILL)?;
        let (guard, at) = within(SOON, "the waiter is granted", waiter).await??;
        let took = at - start;
        println!("granted {took:?} after the kill, session timeout {SESSION:?}, tick {TICK:?}");
        assert!(took <= SESSION + TICK + TAKEOVER + slack(), "C9: granted only {took:?} after the kill");
        assert!(guard.fencing_token().get() > holder.token, "C4: a token must rise");
        assert_eq!(guard.release().await?, Released::Freed);
    }
    Ok(locker.shutdown().await?)
}

pub(crate) async fn stopped() -> Result<(), Failed> {
    let server = start()?;
    let url = url(&server);
    let locker = connect(&url).await?;
    let mut holder = Holder::start(&url)?;
    let waiter = waiting(&locker).await?;
    holder.process.signal(Signal::SIGSTOP)?;
    let (guard, _) = within(SOON, "the waiter is granted", waiter).await??;
    assert!(guard.fencing_token().get() > holder.token, "C4: a token must rise");
    holder.process.signal(Signal::SIGCONT)?;
    holder.process.tell("")?;
    assert_eq!(holder.process.hear()?, "false", "C3: a stopped holder knows at once that it lost the lock");
    sleep(SESSION + TICK * 2).await;
    assert!(guard.is_held(), "C2: what the past holder does must not touch the present grant");
    assert_eq!(guard.release().await?, Released::Freed);
    Ok(locker.shutdown().await?)
}

fn start() -> Result<ZooKeeperServer, Failed> {
    Ok(ZooKeeperServer::start_with(ZooKeeperOptions::default().with_tick(TICK))?)
}

fn url(server: &ZooKeeperServer) -> String {
    format!("{}?session_timeout={}ms", server.url(), SESSION.as_millis())
}

async fn connect(url: &str) -> Result<Locker, Failed> {
    // The store's own queue is what is tested.
    let locker = Locker::new(ZooKeeper::connect(Config::from_url(StoreUrl::parse(url)?)?).await?)
        .with_process_gate(false);
    Ok(locker.with_defaults(LockOptions::new().with_ttl(SESSION))?)
}

/// Somebody who stands in the queue, behind the holder.
async fn waiting(locker: &Locker) -> Result<tokio::task::JoinHandle<(LockGuard, Instant)>, Failed> {
    let (waiter, lock) = (contend(locker, NAME)?, mutex(locker, NAME)?);
    let queued = async || lock.inspect().await.ok().filter(|seen| seen.waiters == Some(1)).map(drop);
    crate::support::until("the waiter queues", queued).await?;
    Ok(waiter)
}

/// A process that holds the lock.
struct Holder {
    process: Peer,
    token: u64,
}

impl Holder {
    fn start(url: &str) -> Result<Self, Failed> {
        let process = Peer::start([(HOLDER_URL, url)])?;
        let token = process.hear()?.parse()?;
        Ok(Self { process, token })
    }
}
