//! More waiters than one session can watch. A reconnecting client names all watched paths to the server: from 128 KiB
//! on it refuses them all, and the session is lost.

use std::{sync::Arc, time::Duration};

use lockkit_conformance::proxy::Proxy;
use lockkit_core::spi::{Attempt, Backend as _, Claim, Released, Wait};
use lockkit_zk::{ZooKeeper, zookeeper_client as zk};
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

const QUERY: &str = "session_timeout=20s";

/// Each emoji of four bytes becomes twelve in a path.
fn long_name(number: usize) -> String {
    format!("{}{number:03}", "🔒".repeat(63))
}

/// Some 850 bytes each.
const WAITERS: usize = 240;

/// But for the one that asks.
fn connections(bed: &Bed) -> u64 {
    bed.server.metric("zk_num_alive_connections").unwrap() - 1
}

async fn queue_up(zk: &ZooKeeper, name: &str, count: usize) -> Vec<Box<dyn Claim>> {
    let mut waiters = Vec::new();
    for _ in 0..count {
        let mut waiter = claim(zk, name);
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        waiters.push(waiter);
    }
    waiters
}

async fn reconnect(bed: &Bed, proxy: &Proxy) {
    let sessions = connections(bed);
    for _ in 0..2 {
        proxy.reset_all();
        until("all are connected", async || connections(bed) == sessions).await;
    }
}

/// All take their turns.
async fn drain(waiters: Vec<Box<dyn Claim>>, holders: Vec<Box<dyn Claim>>) {
    let count = waiters.len();
    let mut tasks = JoinSet::new();
    for mut waiter in waiters {
        tasks.spawn(async move {
            // The reconnect itself may have cost an answer; a wake-up, never.
            loop {
                match waiter.attempt(Wait::Queue).await {
                    Ok(Attempt::Granted(grant)) => {
                        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
                        return grant.token;
                    }
                    Ok(Attempt::Busy { .. }) => woken(&mut waiter).await,
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
    let bed = Bed::own(options());
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let (zk, name) = (Arc::new(zk), long_name(0));
    assert_eq!(name.len(), 255);
    assert_eq!(connections(&bed), 1);
    let mut holder = claim(&zk, &name);
    granted(holder.attempt(Wait::Queue).await);
    let waiters = queue_up(&zk, &name, WAITERS).await;
    assert!(connections(&bed) >= 2, "{}", connections(&bed));
    reconnect(&bed, &proxy).await;
    drain(waiters, vec![holder]).await;
    // Whoever comes next finds the crowd gone.
    let mut next = claim(&zk, &name);
    granted(next.attempt(Wait::No).await);
    next.release().await.unwrap();
    until("the extra sessions end", async || connections(&bed) == 1).await;
    bed.assert_clean().await;
}

/// Without a queue, each watches the holder of its own name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_waiters_without_a_queue_survive_a_reconnect_as_well() {
    let bed = Bed::own(options());
    let query = &format!("fair=false&{QUERY}");
    let ((zk, proxy), steady) = (bed.behind_proxy(query).await, bed.connect(query).await);
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for number in 0..WAITERS {
        let (mut holder, mut waiter) = (claim(&steady, &long_name(number)), claim(&zk, &long_name(number)));
        granted(holder.attempt(Wait::Queue).await);
        assert!(!busy(waiter.attempt(Wait::Queue).await).0);
        holders.push(holder);
        waiters.push(waiter);
    }
    assert!(connections(&bed) >= 3, "{}", connections(&bed));
    reconnect(&bed, &proxy).await;
    drain(waiters, holders).await;
    bed.assert_clean().await;
}

/// The server is told whole paths, of which the chroot may be the greater part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_the_chroot_counts_among_the_watched_bytes() {
    let bed = Bed::own(options());
    let chroot = format!("/{}{}", bed.prefix, "c".repeat(230));
    let admin = bed.admin().await;
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    admin.0.create(&chroot, b"", &options).await.unwrap();
    drop(admin);
    until("the admin is gone", async || connections(&bed) == 0).await;
    let proxy = Proxy::start(bed.server.addr()).await.unwrap();
    let zk = connect(&format!("zk://{}{chroot}?{QUERY}", proxy.addr())).await.unwrap();
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    // 137 KiB, and a third of what one session may watch without the chroot.
    let waiters = queue_up(&zk, "a", 450).await;
    assert!(connections(&bed) >= 2, "{}", connections(&bed));
    reconnect(&bed, &proxy).await;
    drain(waiters, vec![holder]).await;
}

/// Who sets aside room for all the holders that a waiter might ever have to watch fills sessions with nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_waiters_for_permits_set_aside_no_more_than_they_need() {
    let bed = Bed::own(options());
    let zk = bed.connect(QUERY).await;
    let mut claims = Vec::new();
    for number in 0..250 {
        let mut claim = permits(&zk, &format!("name {}", number % 5), 1, 1);
        claim.attempt(Wait::Queue).await.unwrap();
        claims.push(claim);
    }
    assert!(connections(&bed) <= 3, "{} sessions", connections(&bed));
    drop(claims);
    bed.assert_clean().await;
}

/// Each takes 2 s to find out that no server answers: not one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_sessions_without_a_connection_are_closed_at_once() {
    let bed = Bed::own(options());
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let mut holder = claim(&zk, &long_name(0));
    granted(holder.attempt(Wait::Queue).await);
    let waiters = queue_up(&zk, &long_name(0), WAITERS).await;
    assert!(connections(&bed) >= 2, "{}", connections(&bed));
    proxy.set(|toxics| toxics.refuse = true);
    proxy.reset_all();
    until("none is connected", async || connections(&bed) == 0).await;
    timeout(Duration::from_secs(3), zk.close()).await.expect("it takes too long").unwrap();
    drop((holder, waiters));
}

#[tokio::test]
async fn who_gives_up_and_who_holds_takes_no_room_from_the_waiters() {
    let bed = Bed::own(options());
    let (zk, name) = (bed.connect(QUERY).await, long_name(WAITERS));
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
    assert_eq!(connections(&bed), 1);
}
