//! Heartbeats: their proof and their cost.

use std::time::{Duration, Instant};

use lockkit_core::{
    ErrorKind, Kind, LockGuard, Locker, Released,
    spi::{LossReason, Wait},
};
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

/// Its connection survives a stall of the server.
const SESSION: Duration = Duration::from_secs(20);

fn query() -> String {
    format!("heartbeat=write&{}", session(SESSION.as_secs()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_heartbeats_by_write_keep_a_lock_and_their_node_goes_with_the_session() {
    let bed = Bed::shared();
    let locker = bed.locker(&query()).await;
    let admin = bed.admin().await;
    let folder = format!("/{}/session", bed.prefix);
    let nodes = admin.children(&folder).await;
    let [node] = &nodes[..] else { panic!("{nodes:?}") };
    let node = format!("{folder}/{node}");
    let writes = async || admin.0.check_stat(&node).await.unwrap().map(|stat| stat.version);
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    // For longer than the timeout.
    until("heartbeats are written", async || writes().await > Some(11)).await;
    until("the last of them is proof", async || guard.remaining() > SESSION * 2 / 5).await;
    assert!(guard.is_held());

    // The deletion of the node does no harm.
    admin.delete(&node).await;
    until("the node is made anew", async || writes().await > Some(1)).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
    bed.assert_clean().await;
    assert!(admin.children(&folder).await.is_empty());
}

/// Heartbeats may be refused because their folder is missing. That is neither a proof nor an
/// outage. A claim that only asks again would wait for ever on a session that is never proven.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_heartbeats_by_write_survive_the_deletion_of_their_folder() {
    let bed = Bed::shared();
    let zk = bed.connect(&query()).await;
    let admin = bed.admin().await;
    let folder = format!("/{}/session", bed.prefix);
    admin.delete_all(&format!("/{}", bed.prefix)).await;
    until("the folder and the node are made anew", async || {
        !admin.children(&folder).await.is_empty()
    })
    .await;
    let node = format!("{folder}/{}", admin.children(&folder).await[0]);
    // For longer than the timeout.
    let writes = async || admin.0.check_stat(&node).await.unwrap().map(|stat| stat.version);
    until("heartbeats are written", async || writes().await > Some(11)).await;
    let mut claim = claim(&zk, "a");
    granted(Ok(persistently(async || claim.attempt(Wait::Queue).await).await));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    drop((claim, zk));
    bed.assert_clean().await;
}

/// Its connection survives a server that has thousands of requests to answer after a stall.
const SESSION_OF_MANY: Duration = Duration::from_secs(40);

async fn hold_many(locker: &Locker, count: usize) -> Vec<LockGuard> {
    let mut tasks = JoinSet::new();
    let mut guards = Vec::with_capacity(count);
    for index in 0..count {
        let mutex = locker.mutex(&format!("m{index}")).unwrap();
        tasks.spawn(async move { mutex.lock().await.unwrap() });
        if tasks.len() == 64 {
            guards.push(tasks.join_next().await.unwrap().unwrap());
        }
    }
    guards.extend(tasks.join_all().await);
    guards
}

/// The number of heartbeats is the version of the node that they write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_heartbeats_and_renewals_cost_the_same_for_one_lock_and_for_thousands() {
    const LOCKS: usize = 1_100;
    const BEATS: u64 = 5;
    let bed = Bed::shared();
    let locker = bed.locker(&session(SESSION_OF_MANY.as_secs())).await;
    let admin = bed.admin().await;
    let folder = format!("/{}/session", bed.prefix);
    let node = format!("{folder}/{}", admin.children(&folder).await[0]);
    let beats = async || admin.0.check_stat(&node).await.unwrap().unwrap().version.cast_unsigned();
    let guards = hold_many(&locker, LOCKS).await;

    let before = bed.received();
    let first = beats().await;
    until("there were some heartbeats", async || u64::from(beats().await - first) >= BEATS).await;
    let requests = bed.received() - before;
    let beats = u64::from(beats().await - first);
    println!("{requests} requests for {beats} heartbeats and {LOCKS} locks");
    // A write and a look for each heartbeat. The rest are pings, and the heartbeat at the edge.
    assert!(requests <= beats * 3 + 20, "{requests} requests for {beats} heartbeats");
    assert!(guards.iter().all(|guard| guard.is_held()), "a lock was lost");
    // The keeper renews after a third of the lease that it knew. It takes the lease that heartbeats
    // have proven, which is half of the timeout.
    let least = || guards.iter().map(|guard| guard.remaining()).min().unwrap();
    until("nearly a third of the timeout is left of all", async || {
        least() > SESSION_OF_MANY * 3 / 10
    })
    .await;
    locker.shutdown().await.unwrap();
}

/// The first round of checks may have missed it; the second has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_one_deleted_node_of_thousands_is_found_within_a_round_of_looks() {
    const LOCKS: usize = 1_200;
    let bed = Bed::shared();
    let locker = bed.locker(&session(SESSION_OF_MANY.as_secs())).await;
    let guards = hold_many(&locker, LOCKS).await;
    let admin = bed.admin().await;
    let victim = &guards[LOCKS / 2];
    let folder = bed.folder(Kind::Mutex, victim.name().as_str());
    let node = admin.children(&folder).await.pop().unwrap();
    admin.delete(&format!("{folder}/{node}")).await;
    assert_eq!(timeout(SOON, victim.lost().wait()).await.unwrap(), LossReason::Evicted);
    assert_eq!(guards.iter().filter(|guard| guard.is_held()).count(), LOCKS - 1);
    locker.shutdown().await.unwrap();
}

/// With one heartbeat each minute, only the holder's own request finds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_manual_renewal_asks_the_server() {
    for fair in ["true", "false"] {
        let bed = Bed::shared();
        let locker = bed.locker(&format!("fair={fair}")).await;
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        guard.renew().await.unwrap();
        bed.admin().await.delete_all(&bed.folder(Kind::Mutex, "a")).await;
        assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        drop(guard);
        locker.shutdown().await.unwrap();
    }
}

async fn lock_over_slow_round_trips(bed: &Bed, heartbeat: &str) {
    const SESSION: Duration = Duration::from_secs(48);
    let (zk, proxy) =
        bed.behind_proxy(&format!("{}&heartbeat={heartbeat}", session(SESSION.as_secs()))).await;
    let locker = locker(zk);
    proxy.set(|toxics| toxics.down.delay = SESSION * 9 / 100);
    let held = locker.mutex(&format!("held by {heartbeat}")).unwrap().lock().await.unwrap();
    let other = locker.mutex(&format!("other of {heartbeat}")).unwrap();
    let start = Instant::now();
    // After this time, the lease counts only from heartbeats with slow answers.
    while start.elapsed() < SESSION * 6 / 5 {
        let guard = other.lock().await.unwrap();
        assert!(held.is_held(), "{heartbeat}: lost after {:?}", start.elapsed());
        guard.release().await.unwrap();
    }
    proxy.heal();
    held.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

/// Each answer comes nearly a tenth of the timeout late, so the next heartbeat is due before. That
/// leaves little of the lease: a stalled server would end it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_c10_slow_round_trips_lose_no_lock_and_refuse_none() {
    let bed = Bed::steady();
    tokio::join!(
        lock_over_slow_round_trips(&bed, "sync"),
        lock_over_slow_round_trips(&bed, "write")
    );
    bed.assert_clean().await;
}
