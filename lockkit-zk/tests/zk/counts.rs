//! What locks cost, by the server's own count of requests.

use std::{sync::Arc, time::Instant};

use lockkit_core::{
    Locker,
    spi::{Claim, Mode, Released, Wait},
};
use lockkit_zk::ZooKeeper;
use tokio::task::JoinSet;

use crate::support::*;

/// No heartbeat for a minute but the first, and no ping for 10 s: a client pings earlier with a shorter connect timeout.
const QUIET: &str = "session_timeout=600s&connect_timeout=60s";

fn bed() -> Bed {
    Bed::own(options().with_config("maxSessionTimeout=600000"))
}

struct Meter {
    bed: Bed,
    /// Asking counts, too.
    asking: u64,
}

impl Meter {
    /// Waits until the first heartbeats of those who have connected are over.
    async fn on(bed: &Bed) -> Self {
        let mut meter = Self { bed: bed.clone(), asking: 0 };
        let mut quiet = 0;
        while quiet < 20 {
            let (before, now) = (meter.read(), meter.read());
            quiet = if meter.asking == now - before { quiet + 1 } else { 0 };
            meter.asking = now - before;
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        meter
    }

    fn read(&self) -> u64 {
        self.bed.server.metric("zk_packets_received").unwrap()
    }

    async fn requests(&self, work: impl Future) -> u64 {
        let before = self.read();
        work.await;
        self.read() - before - self.asking
    }

    fn zxid(&self) -> String {
        let answer = self.bed.server.four_letter("srvr").unwrap();
        answer.lines().find(|line| line.starts_with("Zxid:")).unwrap().to_owned()
    }
}

async fn lock_and_release(locker: &Locker) {
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_pair_costs_three_requests() {
    let bed = bed();
    for query in [QUIET.to_owned(), format!("{QUIET}&fair=false")] {
        let bed = Bed { prefix: format!("{}-{}", bed.prefix, query.len()), ..bed.clone() };
        let locker = bed.locker(&query).await;
        let meter = Meter::on(&bed).await;
        let requests = meter.requests(lock_and_release(&locker)).await;
        assert!(requests <= 6, "{requests} for a name that nobody has used");
        for _ in 0..20 {
            assert_eq!(meter.requests(lock_and_release(&locker)).await, 3);
        }
        // Nothing was left for later.
        assert_eq!(meter.requests(tokio::time::sleep(std::time::Duration::from_millis(300))).await, 0);
        locker.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_grant_costs_at_most_five_requests_and_a_refused_try_one_read() {
    let bed = bed();
    let zk = bed.connect(QUIET).await;
    let meter = Meter::on(&bed).await;
    type MakeClaim = fn(&ZooKeeper, &str) -> Box<dyn Claim>;
    let kinds: [MakeClaim; 2] = [claim, |zk, name| rw(zk, name, Mode::Exclusive)];
    for claim in kinds {
        let (mut holder, mut waiter) = (claim(&zk, "a"), claim(&zk, "a"));
        granted(holder.attempt(Wait::Queue).await);
        let zxid = meter.zxid();
        for _ in 0..2 {
            let mut refused = claim(&zk, "a");
            assert_eq!(meter.requests(async { assert!(!busy(refused.attempt(Wait::No).await).0) }).await, 1);
            // It has nothing to undo.
            assert_eq!(meter.requests(async { drop(refused) }).await, 0);
        }
        assert_eq!(meter.zxid(), zxid, "a refused try writes nothing");
        let queueing = meter.requests(async { assert!(busy(waiter.attempt(Wait::Queue).await).0) }).await;
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
    let bed = bed();
    let (holding, trying) = (bed.locker(QUIET).await, bed.locker(QUIET).await);
    let guard = holding.mutex("a").unwrap().lock().await.unwrap();
    let meter = Meter::on(&bed).await;
    let (zxid, mutex) = (meter.zxid(), trying.mutex("a").unwrap());
    let requests = meter.requests(async {
        for _ in 0..50 {
            assert!(mutex.try_lock().await.unwrap().is_none());
        }
    });
    assert_eq!(requests.await, 50);
    assert_eq!(meter.zxid(), zxid);
    guard.release().await.unwrap();
}

/// A herd would cost one request per waiter and hand-over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_hand_over_wakes_one_of_two_hundred_waiters() {
    let bed = bed();
    let zk = bed.connect(QUIET).await;
    let meter = Meter::on(&bed).await;
    // Two names, as one of them alone could be a constant.
    for name in ["a", "b"] {
        let mut holder = claim(&zk, name);
        granted(holder.attempt(Wait::Queue).await);
        // Each waits by itself, and comes forward with its grant.
        let (forward, mut granted) = tokio::sync::mpsc::unbounded_channel();
        for _ in 0..200 {
            let (mut waiter, forward) = (claim(&zk, name), forward.clone());
            assert!(busy(waiter.attempt(Wait::Queue).await).0);
            tokio::spawn(async move {
                woken(&mut waiter).await;
                lock(&mut waiter).await;
                // Nobody listens at the end of the test.
                let _ = forward.send(waiter);
            });
        }
        for _ in 0..20 {
            let next = async {
                holder.release().await.unwrap();
                holder = granted.recv().await.unwrap();
            };
            // The delete of one, and a look of the other.
            assert_eq!(meter.requests(next).await, 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_drain_at_five_requests_each() {
    const WAITERS: u64 = 1_000;
    let bed = bed();
    let locker = bed.locker(QUIET).await;
    let meter = Meter::on(&bed).await;
    let mutex = Arc::new(locker.mutex("a").unwrap());
    let holder = mutex.lock().await.unwrap();
    let started = Instant::now();
    let requests = meter.requests(async {
        let mut tasks = JoinSet::new();
        for _ in 0..WAITERS {
            let mutex = Arc::clone(&mutex);
            tasks.spawn(async move { mutex.lock().await.unwrap().release().await.unwrap() });
        }
        let queued =
            async || locker.inspect(mutex.name()).await.is_ok_and(|seen| seen.waiters == Some(WAITERS));
        while !queued().await {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        println!("{WAITERS} queued after {:?}", started.elapsed());
        holder.release().await.unwrap();
        assert!(tasks.join_all().await.into_iter().all(|released| released == Released::Freed));
    });
    let requests = requests.await;
    let seconds = started.elapsed().as_secs() + 1;
    println!("{requests} requests for {WAITERS} grants within {:?}", started.elapsed());
    // Five each, a poll each second at most, the looks of this test and the heartbeats.
    assert!(requests <= WAITERS * 5 + WAITERS * seconds + 50 * seconds, "{requests} in {seconds} s");
    locker.shutdown().await.unwrap();
    bed.assert_clean().await;
}
