//! Mutexes without a queue in a short storm: cut connections, lost replies, dropped calls, deleted folders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lockkit_conformance::proxy::Proxy;
use lockkit_core::spi::{Attempt, Wait};
use lockkit_zk::ZooKeeper;
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{chance::Chance, support::*};

const QUERY: &str = "fair=false";
const LENGTH: Duration = Duration::from_secs(6);
/// With fewer grants than this the test shows nothing.
const LEAST: u64 = 50;
const TASKS: usize = 12;
const MILLISECOND: u64 = 1_000;

#[derive(Default)]
struct Storm {
    over: AtomicBool,
    /// The token of the last holder; locked for as long as somebody is inside.
    inside: Mutex<u64>,
    grants: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_c6_a_storm_leaves_one_holder_at_a_time_and_in_the_end_nothing() {
    let seed = rand::random();
    println!("seed {seed}");
    // Folders are deleted whenever nobody has the lock.
    let bed = Bed::eager();
    let proxy = Proxy::start(bed.server.addr()).await.unwrap();
    let mut sessions = vec![Arc::new(bed.connect(QUERY).await)];
    for _ in 0..3 {
        sessions.push(Arc::new(connect_in_the_end(&bed.url_at(proxy.addr(), QUERY)).await));
    }
    let storm = Arc::new(Storm::default());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let zk = Arc::clone(&sessions[task % sessions.len()]);
        tasks.spawn(user(zk, Arc::clone(&storm), Chance::new(seed, task)));
    }
    disturb(&proxy, &storm, Chance::new(seed, TASKS)).await;
    storm.over.store(true, Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    println!("{} grants", storm.grants.load(Relaxed));
    assert!(storm.grants.load(Relaxed) > LEAST, "hardly anybody got it: the test shows nothing");
    bed.assert_clean().await;
    granted(claim(&sessions[0], "a").attempt(Wait::No).await);
}

async fn disturb(proxy: &Proxy, storm: &Storm, mut chance: Chance) {
    let started = Instant::now();
    let is_enough = || started.elapsed() > LENGTH && storm.grants.load(Relaxed) > LEAST;
    while !is_enough() && started.elapsed() < SOON {
        match chance.below(4) {
            0 => proxy.reset_all(),
            1 => proxy.reset_clients(chance.micros(100 * MILLISECOND)),
            2 => {
                proxy.set(|toxics| toxics.down.discard = true);
                sleep(chance.micros(40 * MILLISECOND)).await;
                proxy.reset_all();
                proxy.heal();
            }
            _ => {}
        }
        sleep(chance.micros(150 * MILLISECOND)).await;
    }
    proxy.heal();
}

/// Tries a few times with each claim, and gives up its calls at any time.
async fn user(zk: Arc<ZooKeeper>, storm: Arc<Storm>, mut chance: Chance) {
    while !storm.over.load(Relaxed) {
        let mut claim = claim(&zk, "a");
        for _ in 0..=chance.below(8) {
            let wait = if chance.below(4) == 0 { Wait::No } else { Wait::Queue };
            let patient = chance.below(2) == 0;
            let patience = if patient { Duration::from_secs(2) } else { chance.micros(4 * MILLISECOND) };
            if let Ok(Ok(Attempt::Granted(grant))) = timeout(patience, claim.attempt(wait)).await {
                let mut last = storm.inside.try_lock().expect("two holders");
                assert!(grant.token.get() > *last, "{} after {last}", grant.token.get());
                *last = grant.token.get();
                storm.grants.fetch_add(1, Relaxed);
                sleep(chance.micros(3 * MILLISECOND)).await;
                break;
            }
            let _ = timeout(chance.micros(5 * MILLISECOND), claim.changed()).await;
        }
        // The others are dropped as they are.
        if chance.below(3) > 0 {
            let _ = timeout(chance.micros(3 * MILLISECOND), claim.release()).await;
        }
    }
}
