//! More waiters than one session can watch. A client that reconnects sends all watched paths to the
//! server. With more than 128 KiB of paths the session is lost.

use std::{sync::Arc, time::Duration};

use lockkit_conformance::proxy::Proxy;
use lockkit_core::spi::{Attempt, Backend as _, Claim, Released, Wait};
use lockkit_fixture::claims::given_up;
use lockkit_zk::{ZooKeeper, zookeeper_client as zk};
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

/// Each emoji of four bytes becomes twelve bytes in a path.
fn long_name(number: usize) -> String {
    format!("{}{number:03}", "🔒".repeat(63))
}

/// About 850 bytes for each waiter.
const WAITERS: usize = 240;

/// An attempt of a claim that has to wait. It may need a new session, which a stalled server does
/// not grant.
async fn attempt(waiter: &mut Box<dyn Claim>) -> (bool, Option<Duration>) {
    busy(Ok(persistently(async || waiter.attempt(Wait::Queue).await).await))
}

async fn queue_up(zk: &ZooKeeper, name: &str, count: usize) -> Vec<Box<dyn Claim>> {
    let mut waiters = Vec::new();
    for _ in 0..count {
        let mut waiter = claim(zk, name);
        assert!(attempt(&mut waiter).await.0);
        waiters.push(waiter);
    }
    waiters
}

/// Reconnects twice. `direct` is the number of connections that do not use the proxy.
async fn reconnect(bed: &Bed, proxy: &Proxy, direct: usize) {
    for _ in 0..2 {
        let before = bed.connected();
        proxy.reset_all();
        let all_are_new = async || {
            let now = bed.connected();
            let new = now.iter().filter(|&address| !before.contains(address));
            now.len() == before.len() && new.count() == before.len() - direct
        };
        until("all are connected anew", all_are_new).await;
    }
}

/// All claims take their turns.
async fn drain(waiters: Vec<Box<dyn Claim>>, holders: Vec<Box<dyn Claim>>) {
    let count = waiters.len();
    let mut tasks = JoinSet::new();
    for mut waiter in waiters {
        tasks.spawn(async move {
            // The reconnect may lose an answer, but never a wake-up.
            loop {
                match waiter.attempt(Wait::Queue).await {
                    Ok(Attempt::Granted(grant)) => {
                        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
                        return grant.token;
                    }
                    // The last one waits for all the others.
                    Ok(Attempt::Busy { .. }) => {
                        let woken = timeout(SOON * 5, waiter.changed()).await;
                        woken.unwrap_or_else(|_| panic!("nobody woke {waiter:?}"));
                    }
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        });
    }
    for mut holder in holders {
        assert_eq!(persistently(async || holder.release().await).await, Released::Freed);
    }
    assert_eq!(tasks.join_all().await.len(), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_waiters_that_one_session_can_not_watch_get_another_and_all_survive_a_reconnect() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let zk = Arc::new(zk);
    let name = long_name(0);
    assert_eq!(name.len(), 255);
    assert_eq!(bed.connections(), 1);
    let mut holder = claim(&zk, &name);
    granted(holder.attempt(Wait::Queue).await);
    let waiters = queue_up(&zk, &name, WAITERS).await;
    assert!(bed.connections() >= 2, "{}", bed.connections());
    reconnect(&bed, &proxy, 0).await;
    drain(waiters, vec![holder]).await;
    // The next claim finds no waiters.
    let mut next = claim(&zk, &name);
    granted(next.attempt(Wait::No).await);
    given_up(next.release()).await;
    until("the extra sessions end", async || bed.connections() == 1).await;
    bed.assert_clean().await;
}

/// Without a queue, each waiter watches the holder of its own name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_waiters_without_a_queue_survive_a_reconnect_as_well() {
    let bed = Bed::shared();
    let query = "fair=false";
    let (zk, proxy) = bed.behind_proxy(query).await;
    let steady = bed.connect(query).await;
    let mut holders = Vec::new();
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let mut holder = claim(&steady, &long_name(number));
        let mut waiter = claim(&zk, &long_name(number));
        granted(holder.attempt(Wait::Queue).await);
        assert!(!attempt(&mut waiter).await.0);
        holders.push(holder);
        waiters.push(waiter);
    }
    assert!(bed.connections() >= 3, "{}", bed.connections());
    reconnect(&bed, &proxy, 1).await;
    drain(waiters, holders).await;
    bed.assert_clean().await;
}

/// The server gets whole paths, and the chroot may be the larger part of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_the_chroot_counts_among_the_watched_bytes() {
    let bed = Bed::shared();
    let chroot = format!("/{}/{}", bed.prefix, "c".repeat(230));
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    bed.admin().await.0.mkdir(&chroot, &options).await.unwrap();
    let proxy = Proxy::start(bed.server.addr()).await.unwrap();
    let zk = connect_in_the_end(&format!("zk://{}{chroot}?{}", proxy.addr(), session(240))).await;
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    // 137 KiB. Without the chroot it would be a third of the bytes that one session may watch.
    let waiters = queue_up(&zk, "a", 450).await;
    assert!(bed.connections() >= 2, "{}", bed.connections());
    reconnect(&bed, &proxy, 0).await;
    drain(waiters, vec![holder]).await;
}

/// Catches a waiter that reserves space for all holders that it might ever watch, and so fills
/// sessions with unused reservations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_waiters_for_permits_set_aside_no_more_than_they_need() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let mut claims = Vec::new();
    for number in 0..250 {
        let mut claim = permits(&zk, &format!("name {}", number % 5), 1, 1);
        persistently(async || claim.attempt(Wait::Queue).await).await;
        claims.push(claim);
    }
    assert!(bed.connections() <= 3, "{} sessions", bed.connections());
    drop(claims);
    bed.assert_clean().await;
}

/// Each session takes 2 s to find that no server answers. They must not close one after the other.
const PARTING: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_sessions_without_a_connection_are_closed_at_once() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let mut holder = claim(&zk, &long_name(0));
    granted(holder.attempt(Wait::Queue).await);
    let waiters = queue_up(&zk, &long_name(0), WAITERS * 3).await;
    let sessions = u32::try_from(bed.connections()).unwrap();
    assert!(sessions >= 6, "{sessions}");
    proxy.set(|toxics| toxics.refuse = true);
    proxy.reset_all();
    until("none is connected", async || bed.connections() == 0).await;
    timeout(PARTING * (sessions - 1), zk.close()).await.expect("it takes too long").unwrap();
    drop((holder, waiters));
}

#[tokio::test]
async fn cancelled_calls_and_holders_take_no_room_from_waiters() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let name = long_name(WAITERS);
    let mut holder = claim(&zk, &name);
    granted(holder.attempt(Wait::Queue).await);
    for _ in 0..WAITERS {
        assert!(busy(claim(&zk, &name).attempt(Wait::Queue).await).0);
    }
    let mut held = Vec::new();
    for number in 0..WAITERS {
        let mut other = claim(&zk, &long_name(number));
        granted(other.attempt(Wait::Queue).await);
        held.push(other);
    }
    assert_eq!(bed.connections(), 1);
}
