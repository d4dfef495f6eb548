//! Tests slots that move to another node.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lockkit_core::{
    ErrorKind, FencingToken, LockGuard, Locker, Result,
    spi::{Attempt, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::{RedisClusterOptions, RedisOptions, claims::until};

use crate::{cluster::Nodes, support::*};

#[tokio::test]
async fn c8_a_waiter_is_woken_after_its_slot_has_moved() {
    let nodes = Nodes::start().await;
    let slot = nodes.slot("a");
    let from = nodes.cluster.owner_of(slot).unwrap();
    let mut holder = nodes.claim("a");
    let mut last = granted(holder.attempt(Wait::No).await).token;
    for to in [(from + 1) % 3, (from + 2) % 3, from] {
        let (mut waiter, signal) = nodes.waiter("a");
        busy(waiter.attempt(Wait::Queue).await);
        nodes.cluster.migrate_slot(slot, to).unwrap();
        // The old node has dropped the subscription, and has sent a message about it.
        signal.heard().await;
        busy(waiter.attempt(Wait::Queue).await);
        assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        let wakes = signal.wakes();
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        let token = lock(&mut waiter, &signal).await.token;
        assert!(signal.wakes() > wakes && token > last);
        (holder, last) = (waiter, token);
    }
    assert!(nodes.errors(from, "MOVED") > 0);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    nodes.assert_clean().await;
}

#[tokio::test]
async fn c10_a_renewal_follows_its_keys_and_a_half_moved_name_is_unavailable_for_others() {
    let nodes = Nodes::start().await;
    let slot = nodes.slot("a");
    let from = nodes.cluster.owner_of(slot).unwrap();
    let mut holder = nodes.claim("a");
    granted(holder.attempt(Wait::No).await);
    let migration = nodes.cluster.begin_migration(slot, (from + 1) % 3).unwrap();
    let unavailable = async || {
        let mut other = nodes.claim("a");
        let error = other.attempt(Wait::No).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::Unavailable, false),
            "{error}"
        );
        assert!(error.is_temporary(), "{error}");
        assert_eq!(other.release().await.unwrap(), Released::NotHeld);
    };
    // Neither node has all keys of the script, because the name has no queue.
    unavailable().await;
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert!(nodes.errors(from, "TRYAGAIN") > 0 && nodes.errors(from, "ASK") == 0);

    nodes.cluster.move_keys(&migration).unwrap();
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert!(nodes.errors(from, "ASK") > 0);
    unavailable().await;

    nodes.cluster.finish_migration(migration).unwrap();
    assert!(!matches!(nodes.claim("a").attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    granted(nodes.claim("a").attempt(Wait::No).await);
}

#[tokio::test]
async fn c10_nodes_that_know_no_addresses_are_followed() {
    let nameless = ["--cluster-preferred-endpoint-type", "unknown-endpoint"];
    let nodes = RedisOptions::default().with_args(nameless);
    let nodes = Nodes::start_with(RedisClusterOptions::default().with_nodes(nodes), "").await;
    let slot = nodes.slot("a");
    let from = nodes.cluster.owner_of(slot).unwrap();
    let mut holder = nodes.claim("a");
    granted(holder.attempt(Wait::No).await);
    let migration = nodes.cluster.begin_migration(slot, (from + 1) % 3).unwrap();
    nodes.cluster.move_keys(&migration).unwrap();
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    nodes.cluster.finish_migration(migration).unwrap();
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert!(nodes.errors(from, "ASK") > 0 && nodes.errors(from, "MOVED") > 0);
}

/// Checks that a guard is the only holder, with this token.
async fn assert_sole_holder(guard: &LockGuard, token: FencingToken, locker: &Locker) {
    assert!(guard.is_held());
    assert_eq!(guard.fencing_token(), token);
    let seen = locker.inspect(guard.name()).await.unwrap();
    let holders: Vec<_> = seen.holders.iter().map(|holder| (holder.owner, holder.token)).collect();
    assert_eq!(holders, [(Some(guard.owner()), Some(token))]);
}

/// Catches a resume that asks only the former node of the slot, or that gives another token. Also
/// catches a ticket whose name loses a brace or a percent sign.
#[tokio::test]
async fn c2_c11_a_ticket_is_resumed_on_the_node_to_which_its_slot_has_moved() {
    let nodes = Nodes::start().await;
    let first = nodes.locker().await;
    let next = nodes.locker().await;
    for (name, escaped) in [("a", "a"), ("a/{b}%c", "a/%7Bb%7D%25c")] {
        let slot = nodes.slot(escaped);
        let from = nodes.cluster.owner_of(slot).unwrap();
        let to = (from + 1) % 3;
        let mutex = first.mutex(name).unwrap();
        let guard = mutex.lock().await.unwrap();
        let token = guard.fencing_token();
        let ticket = guard.into_ticket().await.unwrap();
        let redirected = nodes.errors(from, "MOVED");
        nodes.cluster.migrate_slot(slot, to).unwrap();
        let exists = nodes.cluster.nodes()[to].ask(["EXISTS", &lock_key(escaped)]).unwrap();
        assert_eq!(exists.text(), "1", "{name}");

        let guard = next.resume(&ticket).await.unwrap();
        assert!(nodes.errors(from, "MOVED") > redirected, "{name}: the old node was not asked");
        assert_sole_holder(&guard, token, &first).await;
        for locker in [&first, &next] {
            assert_stale(locker, &ticket).await;
        }
        assert!(mutex.try_lock().await.unwrap().is_none(), "{name}: two hold it");
        guard.release().await.unwrap();
        let guard = mutex.lock().await.unwrap();
        assert!(guard.fencing_token() > token, "{name}");
        assert_stale(&next, &ticket).await;
        guard.release().await.unwrap();
    }
    nodes.assert_clean().await;
}

/// Waits until a node has refused a resume, because it does not have all keys.
async fn refused_by(
    nodes: &Nodes,
    node: usize,
    resuming: &mut (impl Future<Output = Result<LockGuard>> + Unpin),
) {
    tokio::select! {
        resumed = resuming => panic!("the move has not ended: {resumed:?}"),
        () = until("a node refuses", async || nodes.errors(node, "TRYAGAIN") > 0) => {}
    }
}

/// Catches a resume that ends with the error of a node, or uses its ticket up, while the keys are
/// on two nodes.
#[tokio::test]
async fn c2_a_ticket_of_a_half_moved_name_is_resumed_once_the_move_has_ended() {
    let nodes = Nodes::start().await;
    let first = nodes.locker().await;
    let next = nodes.locker().await;
    let slot = nodes.slot("a");
    let from = nodes.cluster.owner_of(slot).unwrap();
    let to = (from + 1) % 3;
    let guard = first.mutex("a").unwrap().lock().await.unwrap();
    let token = guard.fencing_token();
    let ticket = guard.into_ticket().await.unwrap();
    let migration = nodes.cluster.begin_migration(slot, to).unwrap();
    // Neither node has all keys of the script, because the name has no queue.
    let mut resuming = pin!(next.resume(&ticket));
    refused_by(&nodes, from, &mut resuming).await;
    nodes.cluster.move_keys(&migration).unwrap();
    refused_by(&nodes, to, &mut resuming).await;
    nodes.cluster.finish_migration(migration).unwrap();

    let guard = resuming.await.unwrap();
    assert_sole_holder(&guard, token, &first).await;
    for locker in [&first, &next] {
        assert_stale(locker, &ticket).await;
    }
    assert!(first.mutex("a").unwrap().try_lock().await.unwrap().is_none(), "two hold it");
    guard.release().await.unwrap();
    nodes.assert_clean().await;
}

/// A name with a queue has all of its keys, so one of the two nodes can answer. Catches a resume
/// that does not follow its keys. Also catches one that sends the text of its script to the new
/// node as if that node had the slot already.
#[tokio::test]
async fn c2_tickets_of_a_half_moved_name_with_a_waiter_are_resumed_on_the_node_with_its_keys() {
    let nodes = Nodes::start().await;
    let first = nodes.locker().await;
    let next = nodes.locker().await;
    let slot = nodes.slot("a");
    let from = nodes.cluster.owner_of(slot).unwrap();
    let guard = first.mutex("a").unwrap().lock().await.unwrap();
    let token = guard.fencing_token();
    let (mut waiter, signal) = nodes.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);
    let early = guard.into_ticket().await.unwrap();
    let migration = nodes.cluster.begin_migration(slot, (from + 1) % 3).unwrap();
    let guard = next.resume(&early).await.unwrap();
    assert_sole_holder(&guard, token, &next).await;
    let late = guard.into_ticket().await.unwrap();
    assert_eq!(nodes.errors(from, "ASK"), 0);
    nodes.cluster.move_keys(&migration).unwrap();
    let guard = first.resume(&late).await.unwrap();
    assert!(nodes.errors(from, "ASK") > 0, "the old node was not asked");
    assert_sole_holder(&guard, token, &next).await;
    for ticket in [&early, &late] {
        assert_stale(&next, ticket).await;
    }
    nodes.cluster.finish_migration(migration).unwrap();

    // The old node has dropped the subscription, and has sent a message about it.
    signal.heard().await;
    busy(waiter.attempt(Wait::Queue).await);
    guard.release().await.unwrap();
    assert!(lock(&mut waiter, &signal).await.token > token);
    for ticket in [&early, &late] {
        assert_stale(&first, ticket).await;
    }
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    nodes.assert_clean().await;
}

/// Moves a slot without blocking the tasks that use it.
async fn migrate(nodes: &Arc<Nodes>, slot: u16, to: usize) {
    let nodes = Arc::clone(nodes);
    let moving = tokio::task::spawn_blocking(move || {
        nodes.cluster.migrate_slot(slot, to).unwrap();
    });
    moving.await.unwrap();
}

/// The server sends a confirmation without a request. It must not shift the answers of other
/// requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_answers_reach_their_callers_while_slots_with_waiters_move() {
    let nodes = Arc::new(Nodes::start().await);
    let slot = nodes.slot("moves");
    let stop = Arc::new(AtomicBool::new(false));
    let grants = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for number in 0..8 {
        let nodes = Arc::clone(&nodes);
        let stop = Arc::clone(&stop);
        let grants = Arc::clone(&grants);
        tasks.push(tokio::spawn(async move {
            let name = format!("stays {number}");
            let mut last = None;
            while !stop.load(Ordering::Relaxed) {
                let mut claim = nodes.claim(&name);
                let token = granted(claim.attempt(Wait::No).await).token;
                assert!(last < Some(token));
                last = Some(token);
                assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
                assert_eq!(claim.release().await.unwrap(), Released::Freed);
                grants.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let mut holder = nodes.claim("moves");
    granted(holder.attempt(Wait::No).await);
    let mut to = nodes.cluster.owner_of(slot).unwrap();
    for _ in 0..6 {
        let (mut waiter, signal) = nodes.waiter("moves");
        busy(waiter.attempt(Wait::Queue).await);
        to = (to + 1) % 3;
        migrate(&nodes, slot, to).await;
        signal.heard().await;
        busy(waiter.attempt(Wait::Queue).await);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        lock(&mut waiter, &signal).await;
        holder = waiter;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(grants.load(Ordering::Relaxed) > 20);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    nodes.assert_clean().await;
}

/// Locks and unlocks until `stop` is set. Unavailable servers are no failure; two holders are.
async fn compete(
    nodes: Arc<Nodes>,
    stop: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    newest: Arc<AtomicU64>,
) -> u64 {
    let mut grants = 0;
    while !stop.load(Ordering::Relaxed) {
        let (mut claim, signal) = nodes.waiter("moves");
        let granted = loop {
            match claim.attempt(Wait::Queue).await {
                Ok(Attempt::Granted(grant)) => break Some(grant),
                Ok(Attempt::Busy { .. }) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
            if stop.load(Ordering::Relaxed) {
                break None;
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), signal.heard()).await;
        };
        if let Some(grant) = granted {
            assert!(!held.swap(true, Ordering::SeqCst), "two holders");
            assert!(
                newest.fetch_max(grant.token.get(), Ordering::SeqCst) < grant.token.get(),
                "an old token"
            );
            tokio::task::yield_now().await;
            held.store(false, Ordering::SeqCst);
            grants += 1;
        }
        while let Err(error) = claim.release().await {
            assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    grants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_a_slot_moves_under_load() {
    let nodes = Arc::new(Nodes::start().await);
    let slot = nodes.slot("moves");
    let stop = Arc::new(AtomicBool::new(false));
    let held = Arc::new(AtomicBool::new(false));
    let newest = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            tokio::spawn(compete(
                Arc::clone(&nodes),
                Arc::clone(&stop),
                Arc::clone(&held),
                Arc::clone(&newest),
            ))
        })
        .collect();
    let mut to = nodes.cluster.owner_of(slot).unwrap();
    for _ in 0..8 {
        to = (to + 1) % 3;
        let before = newest.load(Ordering::SeqCst);
        migrate(&nodes, slot, to).await;
        let deadline = tokio::time::Instant::now() + SOON;
        while newest.load(Ordering::SeqCst) == before {
            assert!(
                tokio::time::Instant::now() < deadline,
                "nobody got the lock after the slot has moved"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    assert!((0..3).map(|node| nodes.errors(node, "MOVED")).sum::<u64>() > 0);
    nodes.assert_clean().await;
}
