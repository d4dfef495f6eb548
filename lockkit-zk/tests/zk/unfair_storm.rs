//! Mutexes without a queue in a short storm: cut connections, lost replies, dropped calls, deleted
//! folders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use lockkit_conformance::{Stay, Witness, proxy::Proxy};
use lockkit_core::spi::{Attempt, Mode, Wait};
use lockkit_fixture::cut;
use lockkit_zk::ZooKeeper;
use rand::{random, random_range};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::*;

const QUERY: &str = "fair=false";
const LENGTH: Duration = Duration::from_secs(6);
/// The storm lasts until there were so many grants, but no longer than `LONGEST`.
const LEAST: usize = 30;
const LONGEST: Duration = Duration::from_secs(300);
const TASKS: usize = 12;
const MILLISECOND: u64 = 1_000;

#[derive(Default)]
struct Storm {
    over: AtomicBool,
    witness: Witness,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_c6_a_storm_leaves_one_holder_at_a_time_and_in_the_end_nothing() {
    // Folders are deleted whenever the lock is free.
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
        tasks.spawn(user(zk, Arc::clone(&storm)));
    }
    disturb(&proxy, &storm).await;
    storm.over.store(true, Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let grants = storm.witness.verify();
    println!("{grants} grants");
    assert!(grants > LEAST, "hardly anybody got it: the test shows nothing");
    bed.assert_clean().await;
    // A call that was given up may still make its node, which the session then deletes.
    lock(&mut claim(&sessions[0], "a")).await;
}

async fn disturb(proxy: &Proxy, storm: &Storm) {
    let started = Instant::now();
    let is_enough = || started.elapsed() > LENGTH && storm.witness.count() > LEAST;
    let mut before = 0;
    while !is_enough() && started.elapsed() < LONGEST {
        // A slow machine needs longer than a pause for a grant on new connections.
        if storm.witness.count() == before {
            sleep(LOOK_AGAIN).await;
            continue;
        }
        before = storm.witness.count();
        match random_range(0..4) {
            0 => proxy.reset_all(),
            1 => proxy.reset_clients(micros(100 * MILLISECOND)),
            2 => {
                proxy.set(|toxics| toxics.down.discard = true);
                sleep(micros(40 * MILLISECOND)).await;
                proxy.reset_all();
                proxy.heal();
            }
            _ => {}
        }
        sleep(micros(150 * MILLISECOND)).await;
    }
    proxy.heal();
}

/// Tries a few times with each claim, and gives up its calls at any time.
async fn user(zk: Arc<ZooKeeper>, storm: Arc<Storm>) {
    while !storm.over.load(Relaxed) {
        let mut claim = claim(&zk, "a");
        for _ in 0..=random_range(0..8) {
            let wait = if random_range(0..4) == 0 { Wait::No } else { Wait::Queue };
            let patient = random_range(0..2) == 0;
            let polls = if patient { usize::MAX } else { random_range(1..6) };
            let attempt = cut(claim.attempt(wait), polls, random());
            if let Some(Ok(Attempt::Granted(grant))) = attempt.await {
                let from = Instant::now();
                sleep(micros(3 * MILLISECOND)).await;
                let until = Instant::now();
                let mode = Mode::Exclusive;
                storm.witness.record(Stay { token: grant.token, mode, asked: None, from, until });
                break;
            }
            let _ = timeout(micros(5 * MILLISECOND), claim.changed()).await;
        }
        // The other claims are dropped in any state.
        if random_range(0..3) > 0 {
            let _ = cut(claim.release(), random_range(1..6), random()).await;
        }
    }
}

/// Up to `most` microseconds.
fn micros(most: u64) -> Duration {
    Duration::from_micros(random_range(0..=most))
}
