//! C5 and C1 on Redis: scripts are forgotten and connections killed under the users' hands, and nobody notices.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lockkit::{LockOptions, Locker, Released, redis::redis};
use lockkit_fixture::RedisServer;

const TASKS: usize = 8;
const RUN: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c5_script_flush_and_client_kill_do_not_fail_a_user() {
    // Never somebody else's server: all its connections are killed.
    let server = RedisServer::start().unwrap();
    let url = format!("{}?prefix=lockkit-upheaval-{}", server.url(), std::process::id());
    let lockers = [lockkit::connect(&url).await.unwrap(), lockkit::connect(&url).await.unwrap()];
    let done = Arc::new(AtomicBool::new(false));
    let upheaval = tokio::spawn(upheaval(server.url(), Arc::clone(&done)));

    let inside = Arc::new(AtomicU32::new(0));
    let users: Vec<_> = (0..TASKS)
        .map(|task| tokio::spawn(user(lockers[task % 2].clone(), task % 4, Arc::clone(&inside))))
        .collect();
    let mut grants = 0;
    for user in users {
        grants += user.await.unwrap();
    }
    done.store(true, SeqCst);
    let (flushes, kills) = upheaval.await.unwrap();
    println!("{grants} grants through {flushes} script flushes and {kills} rounds of killed connections");
    assert!(flushes > 100 && kills > 20, "too little happened: {flushes} flushes, {kills} kills");
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
}

/// Two names, half of the users on each; every call must succeed.
async fn user(locker: Locker, name: usize, inside: Arc<AtomicU32>) -> u32 {
    let options = LockOptions::new().with_ttl(Duration::from_secs(10));
    let mutex = locker.mutex(&format!("shared {}", name % 2)).unwrap().with_options(options).unwrap();
    let (start, mut grants, mut last) = (Instant::now(), 0, None);
    let unit = if name.is_multiple_of(2) { 1 } else { 0x1_0000 };
    while start.elapsed() < RUN {
        let guard = mutex.lock().await.unwrap();
        let before = inside.fetch_add(unit, SeqCst);
        assert_eq!(if unit == 1 { before & 0xffff } else { before >> 16 }, 0, "two holders of one name");
        assert!(last.replace(guard.fencing_token()) < Some(guard.fencing_token()), "a token must rise");
        tokio::task::yield_now().await;
        assert!(guard.is_held());
        inside.fetch_sub(unit, SeqCst);
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
        grants += 1;
    }
    grants
}

/// Lets the server forget the scripts every 5 ms, and kills all other connections every 100 ms.
async fn upheaval(url: String, done: Arc<AtomicBool>) -> (u32, u32) {
    let mut server = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    let (mut flushes, mut kills) = (0_u32, 0);
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
