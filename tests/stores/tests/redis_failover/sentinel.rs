//! C1, C3, C4, C8, C10 over a failover by sentinels: the primary is killed, or stopped and
//! continued.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use lockkit::{Error, FencingToken, LockGuard, Locker, Lost, spi::LossReason};
use lockkit_fixture::{RedisServer, SentinelGroup, SentinelOptions};
use tokio::{
    task::{JoinHandle, block_in_place},
    time::sleep,
};

use crate::support::*;

const NAMES: usize = 3;
/// A lease that outlasts the failover.
const LONG: Duration = Duration::from_secs(10);
/// A lease that ends before the failover does.
const SHORT: Duration = Duration::from_secs(2);
const DOWN_AFTER: Duration = Duration::from_secs(3);
/// The lease of locks that a new primary does not know. It is also the bound for their holders to
/// hear of the loss, because such a lease is renewed three times within its own length.
const TOLD: Duration = Duration::from_secs(6);
/// The lease of claims that only try.
const BRIEF: Duration = Duration::from_secs(1);
/// The time from the agreement of the sentinels to new grants: the longest pause of a store in
/// trouble, and its consequences.
const RECONNECT: Duration = Duration::from_millis(1500);
/// The default request time for `LONG`.
const OP_TIMEOUT: Duration = Duration::from_secs(3);
/// A request in progress at the fall may still get its answer for this long.
const LAST_ANSWER: Duration = Duration::from_millis(50);
const SLACK: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fall {
    Killed,
    Stopped,
}

/// The users of a group, before, during and after a failover.
struct Scene {
    group: SentinelGroup,
    holder: Locker,
    waiter: Locker,
    long: Vec<LockGuard>,
    short: Vec<LockGuard>,
    waiters: Vec<Waiter>,
}

/// A claim for a lock that another claim holds.
struct Waiter {
    name: String,
    token: FencingToken,
    task: JoinHandle<Result<Win, Error>>,
}

struct Win {
    guard: LockGuard,
    at: Instant,
    /// Whether the previous holder had heard of its loss by then.
    told: bool,
}

impl Scene {
    async fn start() -> Self {
        let group = block_in_place(|| {
            SentinelGroup::start_with(SentinelOptions::default().with_down_after(DOWN_AFTER))
                .unwrap()
        });
        let holder = connect(&group.url()).await;
        let waiter = connect(&group.url()).await;
        let mut long = Vec::new();
        let mut short = Vec::new();
        for index in 0..NAMES {
            long.push(hold(&holder, &format!("long {index}"), LONG).await);
            short.push(hold(&holder, &format!("short {index}"), SHORT).await);
        }
        let mut waiters = Vec::new();
        for held in long.iter().chain(&short) {
            let name = held.name().as_str().to_owned();
            let task = tokio::spawn(wait(waiter.clone(), name.clone(), held.lost()));
            Mode::Mutex.until_waiting(&waiter, &name, 1).await;
            waiters.push(Waiter { name, token: held.fencing_token(), task });
        }
        // This test covers the grants that a failover keeps; another test covers lost grants.
        eventually("the replicas have the locks and their queues", async || {
            let keys = waiters.iter().map(|waiter| lock_key(&waiter.name));
            let keys = keys.flat_map(|key| [format!("{key}:queue"), key]);
            keys.into_iter()
                .all(|key| group.servers()[1..].iter().all(|replica| has_key(replica, &key)))
        })
        .await;
        Self { group, holder, waiter, long, short, waiters }
    }
}

async fn hold(locker: &Locker, name: &str, ttl: Duration) -> LockGuard {
    Mode::Mutex.lock(locker, name, with_ttl(ttl)).await.unwrap()
}

async fn wait(locker: Locker, name: String, before: Lost) -> Result<Win, Error> {
    let guard = Mode::Mutex.lock(&locker, &name, with_ttl(LONG)).await?;
    Ok(Win { guard, told: before.is_lost(), at: Instant::now() })
}

/// Users that only try, each its own name, again and again.
struct Traffic {
    done: Arc<AtomicBool>,
    granted: Arc<Mutex<Vec<Instant>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start(locker: &Locker) -> Self {
        let done = Arc::<AtomicBool>::default();
        let granted = Arc::<Mutex<_>>::default();
        let user = |index| try_on(locker.clone(), index, Arc::clone(&done), Arc::clone(&granted));
        let tasks = (0..NAMES).map(|index| tokio::spawn(user(index))).collect();
        Self { done, granted, tasks }
    }

    /// Returns the time from the fall to the first grant by another primary.
    async fn granted_after(&self, fall: Instant) -> Duration {
        let mut granted = None;
        eventually("a new grant", async || {
            granted =
                self.granted.lock().unwrap().iter().find(|at| **at > fall + LAST_ANSWER).copied();
            granted.is_some()
        })
        .await;
        granted.unwrap() - fall
    }

    async fn stop(self) {
        self.done.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn try_on(
    locker: Locker,
    index: usize,
    done: Arc<AtomicBool>,
    granted: Arc<Mutex<Vec<Instant>>>,
) {
    let name = format!("tried {index}");
    let mut last = None;
    while !done.load(SeqCst) {
        match Mode::Mutex.try_lock(&locker, &name, with_ttl(BRIEF)).await {
            Ok(Some(guard)) => {
                granted.lock().unwrap().push(Instant::now());
                let token = guard.fencing_token();
                assert!(last.replace(token) < Some(token), "{name}: a token must rise");
                let _ = guard.release().await; // unknown, if the primary falls now
            }
            Ok(None) => {}
            Err(error) => assert!(error.is_temporary(), "{error:?}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn fail_over(fall: Fall) {
    let Scene { mut group, holder, waiter, long, short, waiters } = Scene::start().await;
    let tries = connect(&group.url()).await;
    let idle = connect_idle(&group).await;
    let traffic = Traffic::start(&tries);
    sleep(LAST_ANSWER).await;
    block_in_place(|| match fall {
        Fall::Killed => group.server_mut(0).kill().unwrap(),
        Fall::Stopped => group.servers()[0].pause().unwrap(),
    });
    let fell = Instant::now();
    short_holders_hear_of_the_loss(short, fell).await;

    block_in_place(|| group.wait_for_new_primary(0, SOON * 2).unwrap());
    let agreed = fell.elapsed();
    let granted = traffic.granted_after(fell).await;
    let (orphaned, queued): (Vec<_>, Vec<_>) =
        waiters.into_iter().partition(|waiter| waiter.name.starts_with("short"));
    let last = waiters_of_lost_locks_win(orphaned, fell).await;
    long_holders_hold_and_hand_over(long, queued).await;
    traffic.stop().await;
    println!(
        "{fall:?}: the sentinels agreed after {agreed:?}, a try was granted after {granted:?}, a \
         waiter after {last:?}"
    );
    assert!(
        granted < agreed + RECONNECT,
        "a try was granted {granted:?} after the fall, agreed {agreed:?}"
    );
    // A request to a primary that hangs takes its whole time.
    assert!(
        last < agreed.max(OP_TIMEOUT) + RECONNECT,
        "a waiter was granted {last:?} after the fall"
    );

    let new = group.primary().unwrap();
    if fall == Fall::Stopped {
        old_primary_goes_on(&group, &idle).await;
    }
    for locker in [holder, waiter, tries].into_iter().chain(idle) {
        locker.shutdown().await.unwrap();
    }
    assert_eq!(keys_of_names(&group.servers()[new]), [""; 0]);
    eventually("no client is connected to the new primary", async || {
        connections(&group.servers()[new]) == 0
    })
    .await;
}

/// Two lockers that do nothing during the failover. The second one waits for a replica.
async fn connect_idle(group: &SentinelGroup) -> [Locker; 2] {
    let idle =
        [connect(&group.url()).await, connect(&format!("{}?wait_replicas=1", group.url())).await];
    for locker in &idle {
        // Now all connections of these lockers are open.
        let guard = Mode::Mutex.lock(locker, "warm", with_ttl(LONG)).await.unwrap();
        guard.release().await.unwrap();
    }
    idle
}

async fn short_holders_hear_of_the_loss(short: Vec<LockGuard>, fell: Instant) {
    for held in short {
        assert_eq!(held.lost().wait().await, LossReason::Expired);
        let told = fell.elapsed();
        assert!(!held.is_held());
        assert!(
            told < SHORT + SLACK,
            "{}: the loss signal came only {told:?} after the fall",
            held.name()
        );
    }
}

/// Returns the time from the fall to the last of these grants.
async fn waiters_of_lost_locks_win(orphaned: Vec<Waiter>, fell: Instant) -> Duration {
    let mut last = Duration::ZERO;
    for Waiter { name, token, task } in orphaned {
        let Win { guard, at, told } = task.await.unwrap().unwrap();
        assert!(told, "{name}: granted while its holder still believed");
        assert!(guard.fencing_token() > token, "{name}: the token must rise");
        last = last.max(at - fell);
        guard.release().await.unwrap();
    }
    last
}

/// The new primary knows the holders and their waiters.
async fn long_holders_hold_and_hand_over(long: Vec<LockGuard>, queued: Vec<Waiter>) {
    for held in &long {
        held.renew().await.unwrap();
        assert!(held.is_held(), "{}: the new primary knows it", held.name());
    }
    assert!(queued.iter().all(|waiter| !waiter.task.is_finished()));
    for held in long {
        held.release().await.unwrap();
    }
    for Waiter { name, token, task } in queued {
        let Win { guard, .. } = task.await.unwrap().unwrap();
        assert!(guard.fencing_token() > token, "{name}: the token must rise");
        guard.release().await.unwrap();
    }
}

/// A primary that was stopped does not know that it was replaced until a sentinel tells it. Users
/// that were idle meanwhile don't know it either.
async fn old_primary_goes_on(group: &SentinelGroup, [idle, careful]: &[Locker; 2]) {
    let fresh = connect(&group.url()).await;
    let believer = Mode::Mutex.lock(&fresh, "both", with_ttl(LONG)).await.unwrap();
    let alone = Mode::Mutex.lock(&fresh, "one", with_ttl(LONG)).await.unwrap();
    let old = &group.servers()[0];
    old.resume().unwrap();
    let (granted, refused) = tokio::join!(
        Mode::Mutex.try_lock(idle, "both", with_ttl(TOLD)),
        Mode::Mutex.try_lock(careful, "one", with_ttl(LONG)),
    );
    let second = granted.unwrap().expect("the old primary knows of no other grant");
    assert!(
        second.is_held() && believer.is_held(),
        "both believe: this is the exception async_failover"
    );
    assert!(
        second.fencing_token() > believer.fencing_token(),
        "the later grant has the larger token"
    );
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("wait_replicas"),
        "no replica confirms anything to the old primary: {error}"
    );

    for sentinel in group.sentinels() {
        // The first period is how often the sentinels look at a server that wrongly acts as a
        // primary. They demote it after 4 times the second period. The defaults are 2 s and 10 s.
        sentinel.ask(["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "300", "INFO-PERIOD", "300"]).unwrap();
    }
    block_in_place(|| eventually_demoted(old));
    let demoted = Instant::now();
    assert_eq!(second.lost().wait().await, LossReason::Evicted);
    let told = demoted.elapsed();
    assert!(told < TOLD, "the loss signal came only {told:?} after the old primary's end");
    for (locker, held) in [(idle, believer), (careful, alone)] {
        let next =
            Mode::Mutex.try_lock(locker, held.name().as_str(), with_ttl(LONG)).await.unwrap();
        assert!(next.is_none(), "the new primary knows the lock");
        assert!(held.is_held());
        held.release().await.unwrap();
    }
    fresh.shutdown().await.unwrap();
    eventually("no client is connected to the old primary", async || connections(old) == 0).await;
}

fn eventually_demoted(server: &RedisServer) {
    let start = Instant::now();
    // The sentinels close all connections of the old primary as they demote it, perhaps also the
    // connection that asks.
    while server.is_primary().unwrap_or(true) {
        assert!(start.elapsed() < SOON * 2, "the sentinels left the old primary as it is");
        thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c3_c4_c8_a_replica_replaces_a_killed_primary_and_holders_stop_in_time() {
    fail_over(Fall::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c3_c4_c8_a_replica_replaces_a_stopped_primary_and_clients_leave_the_old_one() {
    fail_over(Fall::Stopped).await;
}
