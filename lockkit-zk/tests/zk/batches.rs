//! Tests of the requests that a busy session sends together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, StreamExt as _, future::join_all, stream::FuturesUnordered};
use lockkit_core::{
    Kind,
    spi::{Attempt, Claim, Mode, Released, Wait},
};
use lockkit_fixture::cut;
use lockkit_zk::ZooKeeper;
use tokio::{
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};

use crate::support::*;

const NAMES: usize = 64;
/// The most requests for the locks of all names, and for their releases, if they are sent together.
const MOST_TAKING: u64 = 32;
const MOST_FREEING: u64 = 16;
/// For tasks that want the same locks.
const LOCKS: usize = 40;
const ROUNDS: usize = 20;
/// The bound for the storm.
const LONGEST: Duration = Duration::from_secs(300);
/// How long a waiter of the storm waits before it looks again.
const LOOK: Duration = Duration::from_millis(200);
/// The pause after a request that failed.
const AGAIN: Duration = Duration::from_millis(5);

/// Claims for names whose folders exist, on a session that collects requests. For some seconds after
/// a stall of the server, a session sends all requests alone.
async fn claims(bed: &Bed, zk: &ZooKeeper) -> Vec<Box<dyn Claim>> {
    let mut claims: Vec<_> = (0..NAMES).map(|name| claim(zk, &name.to_string())).collect();
    let start = Instant::now();
    loop {
        let before = bed.received();
        take_all(&mut claims).await;
        free_all(&mut claims).await;
        if bed.received() - before <= MOST_TAKING + MOST_FREEING {
            return claims;
        }
        assert!(start.elapsed() < SOON * 5, "the session collects no requests");
    }
}

/// The tokens of the grants.
async fn take_all(claims: &mut [Box<dyn Claim>]) -> Vec<u64> {
    let attempts = claims.iter_mut().map(|claim| claim.attempt(Wait::Queue));
    let attempts = join_all(attempts).await;
    attempts.into_iter().map(|attempt| granted(attempt).token.get()).collect()
}

async fn free_all(claims: &mut [Box<dyn Claim>]) {
    for released in join_all(claims.iter_mut().map(|claim| claim.release())).await {
        assert_eq!(released.unwrap(), Released::Freed);
    }
}

/// Catches a session that never collects, and a batch that reports another node's transaction.
#[tokio::test]
async fn c4_a_busy_session_sends_requests_together_and_tokens_rise() {
    let bed = Bed::own();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let mut claims = claims(&bed, &zk).await;
    let mut last = vec![0; NAMES];
    // A stall makes the session send the requests of the next rounds alone.
    let mut together = 0;
    let start = Instant::now();
    while together < 5 {
        assert!(start.elapsed() < SOON * 5, "only {together} rounds were sent together");
        let before = bed.received();
        let tokens = take_all(&mut claims).await;
        together += usize::from(bed.received() - before <= MOST_TAKING);
        for (name, token) in tokens.iter().enumerate() {
            let folder = bed.folder(Kind::Mutex, &name.to_string());
            let children = admin.children(&folder).await;
            let [node] = &children[..] else { panic!("{children:?}") };
            assert_eq!(*token, admin.created(&format!("{folder}/{node}")).await);
            assert!(*token > last[name], "C4: {token} after {}", last[name]);
        }
        last = tokens;
        free_all(&mut claims).await;
    }
    drop(claims);
    bed.assert_clean().await;
}

/// Catches two nodes of one lock in one transaction, whose tokens are then the same.
#[tokio::test]
async fn c4_readers_that_come_together_get_different_tokens() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let mut first = rw(&zk, "a", Mode::Shared);
    granted(first.attempt(Wait::Queue).await);
    let mut readers: Vec<_> = (0..NAMES).map(|_| rw(&zk, "a", Mode::Shared)).collect();
    let tokens: BTreeSet<_> = take_all(&mut readers).await.into_iter().collect();
    assert_eq!(tokens.len(), NAMES);
    free_all(&mut readers).await;
    assert_eq!(first.release().await.unwrap(), Released::Freed);
}

/// Catches a refusal of one request that fails the others of its batch, or leaves them undone.
#[tokio::test]
async fn c8_a_folder_that_is_missing_fails_no_other_lock_of_its_batch() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let mut claims = claims(&bed, &zk).await;
    for name in ["7", "63"] {
        admin.delete(&bed.folder(Kind::Mutex, name)).await;
    }
    take_all(&mut claims).await;
    // Another client deletes two of the nodes that are to be released.
    for name in ["9", "62"] {
        let folder = bed.folder(Kind::Mutex, name);
        for node in admin.children(&folder).await {
            admin.delete(&format!("{folder}/{node}")).await;
        }
    }
    let released = join_all(claims.iter_mut().map(|claim| claim.release())).await;
    let freed = released.iter().filter(|answer| matches!(answer, Ok(Released::Freed))).count();
    let gone = released.iter().filter(|answer| matches!(answer, Ok(Released::NotHeld))).count();
    assert_eq!((freed, gone), (NAMES - 2, 2));
    drop(claims);
    bed.assert_clean().await;
}

/// Catches a claim that makes another node although its first one is there, or that takes another
/// transaction for its own.
#[tokio::test]
async fn c5_nodes_of_a_batch_without_an_answer_are_found_again() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let admin = bed.admin().await;
    let mut claims = claims(&bed, &zk).await;
    let made = async || {
        let mut made = 0;
        for name in 0..NAMES {
            made += admin.children(&bed.folder(Kind::Mutex, &name.to_string())).await.len();
        }
        made
    };
    let attempts = claims.iter_mut().map(|claim| claim.attempt(Wait::Queue));
    let mut attempts: FuturesUnordered<_> = attempts.collect();
    // The first four requests and three batches are on the connection, and the others are collected.
    proxy.set(|toxics| toxics.down.hold = true);
    for _ in 0..NAMES {
        assert!(attempts.next().now_or_never().is_none());
    }
    until("the first nodes are made", async || made().await == 7).await;
    // The collected requests are sent when the first batches are answered.
    proxy.set(|toxics| (toxics.up.hold, toxics.down.hold) = (true, false));
    for _ in 0..4 {
        granted(attempts.next().await.unwrap());
    }
    assert!(attempts.next().now_or_never().is_none());
    proxy.set(|toxics| (toxics.up.hold, toxics.down.discard) = (false, true));
    let lost = async {
        until("all nodes are made", async || made().await == NAMES).await;
        proxy.reset_all();
        proxy.heal();
    };
    let (attempts, ()) = tokio::join!(attempts.collect::<Vec<_>>(), lost);
    assert_eq!(attempts.len(), NAMES - 4);
    for attempt in attempts {
        let error = attempt.unwrap_err();
        assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}");
    }
    for (name, claim) in claims.iter_mut().enumerate() {
        let token = persistently(async || match claim.attempt(Wait::Queue).await? {
            Attempt::Granted(grant) => Ok(grant.token.get()),
            busy => panic!("{busy:?}"),
        })
        .await;
        let folder = bed.folder(Kind::Mutex, &name.to_string());
        let children = admin.children(&folder).await;
        let [node] = &children[..] else { panic!("{children:?}") };
        assert_eq!(token, admin.created(&format!("{folder}/{node}")).await);
    }
    free_all(&mut claims).await;
    drop(claims);
    bed.assert_clean().await;
}

/// Catches a batch with requests of callers that gave up before it was sent.
#[tokio::test]
async fn c6_a_request_whose_caller_gave_up_is_not_sent() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let admin = bed.admin().await;
    let mut claims = claims(&bed, &zk).await;
    let changes = async || {
        let mut changes = BTreeMap::new();
        for name in 0..NAMES {
            let stat = admin.stat(&bed.folder(Kind::Mutex, &name.to_string())).await;
            changes.insert(name, stat.cversion);
        }
        changes
    };
    let before = changes().await;
    proxy.set(|toxics| toxics.down.hold = true);
    let attempts = claims.iter_mut().map(|claim| claim.attempt(Wait::Queue));
    let mut attempts: Vec<_> = attempts.collect();
    for attempt in &mut attempts {
        assert!(attempt.now_or_never().is_none());
    }
    let (patient, gave_up): (Vec<_>, Vec<_>) =
        attempts.into_iter().enumerate().partition(|(name, _)| name % 2 == 0);
    drop(gave_up);
    proxy.heal();
    for attempt in join_all(patient.into_iter().map(|(_, attempt)| attempt)).await {
        granted(attempt);
    }
    drop(claims);
    bed.assert_clean().await;
    let after = changes().await;
    let changed: Vec<_> = (0..NAMES).filter(|name| before[name] != after[name]).collect();
    let gave_up = changed.iter().filter(|name| *name % 2 == 1).count();
    assert_eq!(changed.len() - gave_up, NAMES / 2);
    // The first seven requests were sent before that.
    assert!(gave_up <= 4, "nodes were made for callers that had given up: {changed:?}");
}

/// Catches batches that wait for callers that are not polled: without an end, or again and again.
#[tokio::test]
async fn c8_callers_that_are_not_polled_delay_the_others_once() {
    const PAIRS: u32 = 40;
    let bed = Bed::steady();
    let (zk, proxy) = bed.behind_proxy("").await;
    let mut claims = claims(&bed, &zk).await;
    let (idle, busy) = claims.split_at_mut(NAMES / 2);
    proxy.set(|toxics| toxics.down.hold = true);
    let mut idle = join_all(idle.iter_mut().map(|claim| claim.attempt(Wait::Queue)));
    assert!((&mut idle).now_or_never().is_none());
    proxy.heal();
    // A batch that has no turn waits for 500 ms.
    let pairs = async {
        for _ in 0..PAIRS {
            granted(busy[0].attempt(Wait::Queue).await);
            assert_eq!(busy[0].release().await.unwrap(), Released::Freed);
        }
    };
    let begun = Instant::now();
    timeout(SOON, pairs).await.expect("the others are granted");
    let each = begun.elapsed() / (PAIRS * 2);
    assert!(each < Duration::from_millis(400), "{each:?} for each request");
    take_all(busy).await;
    for attempt in timeout(SOON, idle).await.expect("those that are polled again, too") {
        granted(attempt);
    }
    drop(claims);
    bed.assert_clean().await;
}

/// The tasks share this.
struct Storm {
    locks: [Seen; LOCKS],
    grants: AtomicUsize,
}

/// The view that the tasks have of one lock.
#[derive(Default)]
struct Seen {
    is_held: AtomicBool,
    token: AtomicU64,
}

/// Takes locks in turn. Every third time, gives up after a number of polls. After a time, a slow
/// machine would have done nothing.
async fn hurry(zk: Arc<ZooKeeper>, storm: Arc<Storm>, task: usize) {
    for round in 0..ROUNDS {
        let name = (task * 7 + round) % LOCKS;
        let mut claim = claim(&zk, &name.to_string());
        let gives_up = (task + round).is_multiple_of(3);
        let polls = if gives_up { 1 + (task * 11 + round * 7) % 20 } else { usize::MAX };
        let late = round.is_multiple_of(2);
        let Some(token) = cut(token_of(&mut claim), polls, late).await else { continue };
        let seen = &storm.locks[name];
        assert!(!seen.is_held.swap(true, SeqCst), "C1: {name} has two holders");
        let before = seen.token.swap(token, SeqCst);
        assert!(token > before, "C4: {token} after {before} for {name}");
        yield_now().await;
        seen.is_held.store(false, SeqCst);
        storm.grants.fetch_add(1, SeqCst);
        while let Err(error) = claim.release().await {
            assert!(error.is_temporary(), "{error}");
            sleep(AGAIN).await;
        }
    }
}

/// Waits for the lock, and returns the token.
async fn token_of(claim: &mut Box<dyn Claim>) -> u64 {
    loop {
        match claim.attempt(Wait::Queue).await {
            Ok(Attempt::Granted(grant)) => return grant.token.get(),
            // Like the driver, it looks again if a connection lost the news.
            Ok(Attempt::Busy { .. }) => drop(timeout(LOOK, claim.changed()).await),
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                sleep(AGAIN).await;
            }
        }
    }
}

/// Catches batches that mix up answers, and nodes of a batch that stay in the tree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_c6_a_busy_session_survives_broken_connections_and_callers_that_give_up() {
    let bed = Bed::own();
    let (zk, proxy) = bed.behind_proxy("").await;
    let zk = Arc::new(zk);
    let locks = std::array::from_fn(|_| Seen::default());
    let storm = Arc::new(Storm { locks, grants: AtomicUsize::new(0) });
    let mut tasks = JoinSet::new();
    for task in 0..NAMES {
        tasks.spawn(hurry(Arc::clone(&zk), Arc::clone(&storm), task));
    }
    let mut at_reset = 0;
    let start = Instant::now();
    while start.elapsed() < LONGEST {
        tokio::select! {
            done = tasks.join_next() => match done {
                Some(done) => done.unwrap(),
                None => break,
            },
            // The new connection must be good for some grants, however slow the machine is.
            () = sleep(Duration::from_millis(1)) => {
                let grants = storm.grants.load(SeqCst);
                if grants >= at_reset + NAMES {
                    at_reset = grants;
                    proxy.reset_all();
                }
            }
        }
    }
    assert!(tasks.is_empty(), "a lock that no task holds is taken");
    assert!(at_reset > 0, "no connection was broken");
    for name in 0..LOCKS {
        // The last connection may have been broken just now.
        let mut claim = claim(&zk, &name.to_string());
        timeout(SOON, token_of(&mut claim)).await.expect("a node stays in the tree");
    }
    bed.assert_clean().await;
}
