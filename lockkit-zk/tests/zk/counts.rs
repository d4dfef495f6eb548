//! The number of requests that locks cost, by the server's own count.

use std::{sync::Arc, time::Instant};

use lockkit_core::{
    Kind, Locker,
    spi::{Claim, Mode, Wait},
};
use lockkit_fixture::claims::given_up;
use lockkit_zk::ZooKeeper;
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

/// Counts the requests of a prefix's sessions. They send only the first heartbeat within a minute,
/// and no ping before they are idle for 10 s.
struct Meter {
    bed: Bed,
    admin: Admin,
}

impl Meter {
    /// Waits until the first heartbeats of the connected sessions are over.
    async fn on(bed: &Bed) -> Self {
        let (bed, admin) = (bed.clone(), bed.admin().await);
        let folder = format!("/{}/session", bed.prefix);
        for node in admin.children(&folder).await {
            let written = async || admin.stat(&format!("{folder}/{node}")).await.version > 0;
            until("the first heartbeat is over", written).await;
        }
        Self { bed, admin }
    }

    async fn requests(&self, work: impl Future) -> u64 {
        let before = self.bed.received();
        work.await;
        self.bed.received() - before
    }

    /// The zxids of the last change to the folder of a lock, and to its children.
    async fn changed(&self, kind: Kind, name: &str) -> (i64, i64) {
        let stat = self.admin.stat(&self.bed.folder(kind, name)).await;
        (stat.mzxid, stat.pzxid)
    }
}

async fn lock_and_release(locker: &Locker) {
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
}

/// A session's second heartbeat comes after a minute: a write and a read, which may fall into these
/// measurements.
fn assert_but_for_a_heartbeat(costs: &[u64], requests: u64) {
    assert!(costs.iter().all(|cost| *cost >= requests), "{costs:?}");
    let others: u64 = costs.iter().map(|cost| cost - requests).sum();
    assert!(others <= 2, "{costs:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_pair_costs_three_requests() {
    for query in ["", "fair=false"] {
        // A session's second heartbeat comes after a minute, and would count. A server that stalls
        // again and again could take that long.
        let bed = Bed::steady();
        let locker = bed.locker(query).await;
        let meter = Meter::on(&bed).await;
        let requests = meter.requests(lock_and_release(&locker)).await;
        assert!(requests <= 6, "{requests} for a name that nobody has used");
        let mut costs = Vec::new();
        for _ in 0..20 {
            costs.push(meter.requests(lock_and_release(&locker)).await);
        }
        assert_but_for_a_heartbeat(&costs, 3);
        // No request was left for later.
        assert_eq!(
            meter.requests(tokio::time::sleep(std::time::Duration::from_millis(300))).await,
            0
        );
        locker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_grant_costs_at_most_five_requests_and_a_refused_try_one_read() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let meter = Meter::on(&bed).await;
    type MakeClaim = fn(&ZooKeeper, &str) -> Box<dyn Claim>;
    let kinds: [(Kind, MakeClaim); 2] =
        [(Kind::Mutex, claim), (Kind::RwLock, |zk, name| rw(zk, name, Mode::Exclusive))];
    for (kind, claim) in kinds {
        let mut holder = claim(&zk, "a");
        let mut waiter = claim(&zk, "a");
        granted(holder.attempt(Wait::Queue).await);
        let before = meter.changed(kind, "a").await;
        for _ in 0..2 {
            let mut refused = claim(&zk, "a");
            assert_eq!(
                meter.requests(async { assert!(!busy(refused.attempt(Wait::No).await).0) }).await,
                1
            );
            // The refused claim has nothing to undo.
            assert_eq!(meter.requests(async { drop(refused) }).await, 0);
        }
        assert_eq!(meter.changed(kind, "a").await, before, "a refused try writes nothing");
        let queueing =
            meter.requests(async { assert!(busy(waiter.attempt(Wait::Queue).await).0) }).await;
        let freeing = meter.requests(async { holder.release().await.unwrap() }).await;
        let granting = meter.requests(lock(&mut waiter)).await;
        let releasing = meter.requests(async { waiter.release().await.unwrap() }).await;
        assert_eq!((queueing, freeing, granting, releasing), (3, 1, 1, 1));
    }
    drop(zk);
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_try_through_the_driver_writes_nothing() {
    let bed = Bed::shared();
    let holding = bed.locker("").await;
    let trying = bed.locker("").await;
    let guard = holding.mutex("a").unwrap().lock().await.unwrap();
    let meter = Meter::on(&bed).await;
    let mutex = trying.mutex("a").unwrap();
    let before = meter.changed(Kind::Mutex, "a").await;
    let requests = meter.requests(async {
        for _ in 0..50 {
            assert!(mutex.try_lock().await.unwrap().is_none());
        }
    });
    let requests = requests.await;
    // The holder's session is idle, and may have sent a ping.
    assert!((50..55).contains(&requests), "{requests} requests");
    assert_eq!(meter.changed(Kind::Mutex, "a").await, before);
    guard.release().await.unwrap();
}

/// A herd would cost one request per waiter and hand-over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_hand_over_wakes_one_of_two_hundred_waiters() {
    // A session's second heartbeat comes after a minute, and would count. A server that stalls
    // again and again could take that long.
    let bed = Bed::steady();
    // Two names, because the numbers of one name alone could be a constant.
    for name in ["a", "b"] {
        let zk = bed.connect("").await;
        let meter = Meter::on(&bed).await;
        let mut waiters = JoinSet::new();
        let mut holder = claim(&zk, name);
        granted(holder.attempt(Wait::Queue).await);
        // Each waiter waits by itself, and reports when it is granted.
        let (forward, mut granted) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..200 {
            let mut waiter = claim(&zk, name);
            let forward = forward.clone();
            assert!(busy(waiter.attempt(Wait::Queue).await).0);
            waiters.spawn(async move {
                timeout(SOON * 5, waiter.changed()).await.expect("nobody wakes it");
                lock(&mut waiter).await;
                // At the end of the test no task receives this.
                let _ = forward.send(waiter);
            });
        }
        let mut costs = Vec::new();
        for _ in 0..20 {
            let next = async {
                given_up(holder.release()).await;
                holder = granted.recv().await.unwrap();
            };
            costs.push(meter.requests(next).await);
        }
        // One delete by the holder, and one look by the waiter.
        assert_but_for_a_heartbeat(&costs, 2);
        drop(holder);
        drop(granted);
        drop(waiters);
        drop(zk);
        until("the session has ended", async || bed.connections() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_waiters_drain_at_five_requests_each() {
    const WAITERS: u64 = 300;
    let bed = Bed::shared();
    let locker = bed.locker("").await;
    let meter = Meter::on(&bed).await;
    let mutex = Arc::new(locker.mutex("a").unwrap());
    let holder = mutex.lock().await.unwrap();
    let started = Instant::now();
    let requests = meter.requests(async {
        let mut tasks = JoinSet::new();
        for _ in 0..WAITERS {
            let mutex = Arc::clone(&mutex);
            tasks.spawn(async move { mutex.lock().await.unwrap().release().await });
        }
        let queued = async || {
            locker.inspect(mutex.name()).await.is_ok_and(|seen| seen.waiters == Some(WAITERS))
        };
        while !queued().await {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        println!("{WAITERS} queued after {:?}", started.elapsed());
        holder.release().await.unwrap();
        for released in tasks.join_all().await {
            released.unwrap();
        }
    });
    let requests = requests.await;
    let seconds = started.elapsed().as_secs() + 1;
    println!("{requests} requests for {WAITERS} grants within {:?}", started.elapsed());
    // Five requests for each waiter, at most one poll each second, the looks of this test, and the
    // heartbeats.
    assert!(
        requests <= WAITERS * 5 + WAITERS * seconds + 50 * seconds,
        "{requests} in {seconds} s"
    );
    locker.shutdown().await.unwrap();
    bed.assert_clean().await;
}
