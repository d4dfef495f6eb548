//! Very many held locks. When a session ends, the servers write the paths of all its nodes into one
//! transaction, which must not be too large.

use std::{collections::HashSet, sync::Arc, time::Duration};

use lockkit_core::{
    Error, ErrorKind, LockGuard, Locker, Mutex,
    spi::{Attempt, Backend as _, Wait},
};
use lockkit_fixture::ZooKeeperServer;
use lockkit_zk::{Config, ZooKeeper, zookeeper_client::Client};
use tokio::task::JoinSet;

use crate::support::*;

/// Each emoji of four bytes becomes twelve bytes in a path.
fn long_name(number: usize) -> String {
    format!("{}{number:04}", "🔒".repeat(62))
}

/// The paths of their nodes have 1.1 MB.
const LOCKS: usize = 1_350;
const PARALLEL: usize = 64;
/// The most sessions for so many locks: each has room for half a MiB.
const SESSIONS: usize = 4;

/// A server that stalls may not answer in time.
async fn held(mutex: Mutex) -> LockGuard {
    loop {
        match mutex.lock().await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
    }
}

async fn hold_many(locker: &Locker, count: usize) -> Vec<LockGuard> {
    let mut tasks = JoinSet::new();
    let mut guards = Vec::with_capacity(count);
    for number in 0..count {
        let mutex = locker.mutex(&long_name(number)).unwrap();
        tasks.spawn(held(mutex));
        if tasks.len() == PARALLEL {
            guards.push(tasks.join_next().await.unwrap().unwrap());
        }
    }
    guards.extend(tasks.join_all().await);
    guards
}

/// The server reads no transaction of more than 1 MiB. By default it reads twice as much.
///
/// Catches a client that makes all nodes on one session: the server does not start again. Also
/// catches a hold that keeps its place for a watch: it needs 11 sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_server_starts_again_after_a_client_that_held_very_many_locks() {
    let options = options().with_java("-Dzookeeper.jute.maxbuffer.extrasize=1024");
    let mut server = ZooKeeperServer::start_with(options).unwrap();
    let url = format!("zk://{}/?{}", server.addr(), session(240));
    let client = Arc::new(connect_in_the_end(&url).await);
    let mut tasks = JoinSet::new();
    let mut claims = Vec::new();
    for number in 0..LOCKS {
        let mut claim = claim(&client, &long_name(number));
        tasks.spawn(async move {
            loop {
                match claim.attempt(Wait::Queue).await {
                    Ok(Attempt::Granted(_)) => return claim,
                    Ok(busy) => panic!("{busy:?}"),
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        });
        if tasks.len() == PARALLEL {
            claims.push(tasks.join_next().await.unwrap().unwrap());
        }
    }
    claims.extend(tasks.join_all().await);
    let sessions = server.four_letter("cons").unwrap().matches("sid=").count();
    println!("{sessions} sessions hold {LOCKS} locks");
    assert!((2..=SESSIONS).contains(&sessions), "{sessions}");
    client.close().await.unwrap();
    let nodes = || server.metric("zk_ephemerals_count").unwrap();
    until("the sessions end, and their nodes with them", async || nodes() == 0).await;
    drop(claims);
    server.restart().unwrap();
    connect_in_the_end(&url).await;
}

/// Catches a release that keeps the room of its node, and a session that stays open for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_released_locks_make_room_for_others() {
    let bed = Bed::own();
    let locker = bed.locker(&session(240)).await;
    for _ in 0..2 {
        let guards = hold_many(&locker, LOCKS).await;
        assert!(bed.connections() <= SESSIONS, "{}", bed.connections());
        let mut tasks = JoinSet::new();
        for guard in guards {
            tasks.spawn(async move { persistently_released(guard).await });
        }
        tasks.join_all().await;
    }
    let only = held(locker.mutex("only").unwrap()).await;
    let name = only.name().clone();
    until("the extra sessions end", async || {
        // A release that met a stalled server may keep its session until now.
        let _ = locker.inspect(&name).await;
        bed.connections() == 1
    })
    .await;
    drop(only);
}

/// A release may meet a stalled server. The lock is then freed in the background.
async fn persistently_released(guard: LockGuard) {
    if let Err(error) = guard.release().await {
        assert!(error.is_temporary(), "{error}");
    }
}

/// lockkit can't open another session there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_a_session_of_the_program_refuses_a_lock_that_it_has_no_room_for() {
    let bed = Bed::own();
    let lease = Duration::from_secs(40);
    let connector =
        Client::connector().with_session_timeout(lease).with_connection_timeout(lease * 2 / 9);
    let client = connector.connect(&bed.server.addr().to_string()).await.unwrap();
    let config = || Config::from_client(client.clone()).with_prefix(&bed.prefix).unwrap();
    let locker = locker(persistently(async || ZooKeeper::connect(config()).await).await);
    // The first proof of the session takes two fifths of the timeout.
    let first = held(locker.mutex("first").unwrap()).await;
    let mut attempts = Vec::new();
    let mut tasks = JoinSet::new();
    for number in 0..LOCKS {
        let mutex = locker.mutex(&long_name(number)).unwrap();
        tasks.spawn(async move { mutex.try_lock().await });
        if tasks.len() == PARALLEL {
            attempts.push(tasks.join_next().await.unwrap().unwrap());
        }
    }
    attempts.extend(tasks.join_all().await);
    let mut guards: Vec<_> =
        attempts.extract_if(.., |attempt| attempt.is_ok()).flatten().flatten().collect();
    let no_room = |error: &Error| error.to_string().contains("has no room");
    let refusal = attempts.into_iter().find_map(|attempt| attempt.err().filter(no_room)).unwrap();
    assert_eq!(refusal.kind(), ErrorKind::Unavailable);
    assert!(guards.len() > 500, "{}", guards.len());
    persistently_released(guards.pop().unwrap()).await;
    drop(held(locker.mutex(&long_name(LOCKS)).unwrap()).await);
    drop(first);
    locker.shutdown().await.unwrap();
}

/// Catches a session that is closed as soon as its last claim ends, although the next one needs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_short_locks_beside_a_full_session_share_another_one() {
    let bed = Bed::own();
    let locker = bed.locker(&session(240)).await;
    let mut guards = hold_many(&locker, LOCKS * 2 / 5).await;
    assert_eq!(bed.connections(), 1);
    while bed.connections() == 1 {
        guards.push(held(locker.mutex(&long_name(guards.len())).unwrap()).await);
    }
    // Now no lock is left on the second session.
    persistently_released(guards.pop().unwrap()).await;
    let mut seen = HashSet::new();
    for number in 0..20 {
        // An inspection needs any session. It must not close the one that the next lock needs.
        let mutex = locker.mutex(&long_name(LOCKS + number)).unwrap();
        persistently(async || mutex.inspect().await).await;
        persistently_released(held(mutex).await).await;
        seen.extend(bed.connected());
    }
    // A server that stalls may cost a connection now and then.
    assert!(seen.len() <= 10, "{seen:?}");
}
