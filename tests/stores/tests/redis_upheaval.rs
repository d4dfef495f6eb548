//! C5 and C1 on Redis: the server forgets scripts and loses connections during use, and no call
//! fails.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lockkit::{LockOptions, Locker, redis::redis};
use lockkit_conformance::{Stay, Witness};
use lockkit_fixture::RedisServer;

const TASKS: usize = 8;
const RUN: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_script_flush_and_client_kill_fail_no_call() {
    // This must be the test's own server, because all its connections are killed.
    let server = RedisServer::start().unwrap();
    let url = format!("{}?prefix=lockkit-upheaval-{}", server.url(), std::process::id());
    let lockers = [lockkit::connect(&url).await.unwrap(), lockkit::connect(&url).await.unwrap()];
    let done = Arc::new(AtomicBool::new(false));
    let upheaval = tokio::spawn(upheaval(server.url(), Arc::clone(&done)));

    let witnesses: Arc<[Witness; 2]> = Arc::default();
    let users: Vec<_> = (0..TASKS)
        .map(|task| {
            tokio::spawn(user(lockers[task % 2].clone(), task / 2 % 2, Arc::clone(&witnesses)))
        })
        .collect();
    for user in users {
        user.await.unwrap();
    }
    let grants: usize = witnesses.iter().map(Witness::verify).sum();
    done.store(true, SeqCst);
    let (flushes, kills) = upheaval.await.unwrap();
    println!(
        "{grants} grants through {flushes} script flushes and {kills} rounds of killed connections"
    );
    assert!(flushes > 100 && kills > 20, "too little happened: {flushes} flushes, {kills} kills");
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
}

/// A user of one of two names. Half of each locker's users use each name, and every call must
/// succeed.
async fn user(locker: Locker, name: usize, witnesses: Arc<[Witness; 2]>) {
    let options = LockOptions::new().with_ttl(Duration::from_secs(10));
    let mutex = locker.mutex(&format!("shared {name}")).unwrap().with_options(options).unwrap();
    let start = Instant::now();
    while start.elapsed() < RUN {
        let guard = mutex.lock().await.unwrap();
        let mut stay = Stay::begin(&guard);
        tokio::task::yield_now().await;
        assert!(stay.look(&guard));
        witnesses[name].record(stay);
        guard.release().await.unwrap();
    }
}

/// Makes the server forget the scripts every 5 ms, and kills all other connections every 100 ms.
async fn upheaval(url: String, done: Arc<AtomicBool>) -> (u32, u32) {
    let mut server =
        redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let mut flushes = 0_u32;
    let mut kills = 0;
    while !done.load(SeqCst) {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut server).await.unwrap();
        flushes += 1;
        if flushes.is_multiple_of(20) {
            for kind in ["normal", "pubsub"] {
                let mut kill = redis::cmd("CLIENT");
                kill.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
                let _: u32 = kill.query_async(&mut server).await.unwrap();
            }
            kills += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (flushes, kills)
}
