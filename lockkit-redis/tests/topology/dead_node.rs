//! Tests a cluster with one dead node: locks on the other nodes work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Claim, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::{RedisClusterOptions, RedisServer};
use tokio::task::JoinSet;

use crate::{
    cluster::{Nodes, map_requests},
    support::*,
};

const DEAD: usize = 2;

/// A cluster whose nodes don't notice that one of them is dead.
async fn nodes() -> Nodes {
    let options = RedisClusterOptions::default().with_node_timeout(Duration::from_secs(600));
    Nodes::start_with(options, "").await
}

/// Names whose keys are on this node.
fn names_on(nodes: &Nodes, node: usize) -> impl Iterator<Item = String> {
    let names = (0..).map(|number| format!("name {number}"));
    names.filter(move |name| nodes.cluster.owner_of(nodes.slot(name)).unwrap() == node)
}

fn name_on(nodes: &Nodes, node: usize) -> String {
    names_on(nodes, node).next().unwrap()
}

/// A held lock on each node.
async fn holders(nodes: &Nodes) -> Vec<Box<dyn Claim>> {
    let mut holders = Vec::new();
    for node in 0..3 {
        let mut holder = nodes.claim(&name_on(nodes, node));
        granted(holder.attempt(Wait::No).await);
        holders.push(holder);
    }
    holders
}

async fn assert_alive(holder: &mut Box<dyn Claim>) {
    let outcome = holder.renew(None).await.unwrap();
    assert!(matches!(outcome, RenewalOutcome::Alive(_)), "{outcome:?}");
}

#[tokio::test]
async fn c10_a_dead_node_ends_no_hold_on_another_node_while_new_connections_are_refused() {
    let mut nodes = nodes().await;
    let mut holders = holders(&nodes).await;
    for node in &nodes.cluster.nodes()[..DEAD] {
        node.ask(["ACL", "SETUSER", "default", "off"]).unwrap();
    }
    nodes.cluster.node_mut(DEAD).kill().unwrap();
    for _ in 0..3 {
        let error = holders[DEAD].renew(None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        for holder in &mut holders[..DEAD] {
            assert_alive(holder).await;
        }
    }
    for holder in &mut holders[..DEAD] {
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c10_a_waiter_whose_channel_can_not_be_opened_ends_no_hold_and_gets_the_lock() {
    for refuse in [["ACL", "SETUSER", "default", "off"], ["CONFIG", "SET", "maxclients", "1"]] {
        let nodes = nodes().await;
        let mut holder = holders(&nodes).await.swap_remove(0);
        let held = name_on(&nodes, 0);
        nodes.cluster.nodes()[0].ask(refuse).unwrap();
        let (mut waiter, signal) = nodes.waiter(&held);
        for _ in 0..2 {
            busy(waiter.attempt(Wait::Queue).await);
            assert_eq!(nodes.redis.inspect(&mutex(&held)).await.unwrap().waiters, Some(1));
            assert_alive(&mut holder).await;
        }
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        wait_for(&mut waiter, &signal).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
}

#[tokio::test]
async fn c10_a_hold_continues_if_reading_the_map_is_denied() {
    let nodes = nodes().await;
    let mut holders = holders(&nodes).await;
    let others = [0, 1, 2].map(|node| names_on(&nodes, node).nth(1).unwrap());
    for node in nodes.cluster.nodes() {
        node.ask(["ACL", "SETUSER", "default", "-cluster"]).unwrap();
        node.ask(["CONFIG", "SET", "maxmemory", "1mb"]).unwrap();
    }
    for (holder, other) in holders.iter_mut().zip(others) {
        // Another node might not give this error, so the map is doubted.
        let refused = nodes.claim(&other).attempt(Wait::No).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::StoreFull, "{refused}");
        assert_alive(holder).await;
    }
}

/// How many connections a server has taken, except for the one that asks.
fn connections(server: &RedisServer) -> u64 {
    let stats = server.ask(["INFO", "stats"]).unwrap().text();
    let count = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    count.unwrap().parse::<u64>().unwrap() - 1
}

#[tokio::test]
async fn c13_requests_for_a_dead_node_open_no_connections_to_the_others() {
    let mut nodes = nodes().await;
    drop(holders(&nodes).await);
    let name = name_on(&nodes, DEAD);
    nodes.cluster.node_mut(DEAD).kill().unwrap();
    let counts = |node: &RedisServer| (connections(node), map_requests(node));
    let before: Vec<_> = nodes.cluster.nodes()[..DEAD].iter().map(counts).collect();
    let redis = Arc::new(nodes.redis);
    let refused = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let redis = Arc::clone(&redis);
        let name = name.clone();
        let refused = Arc::clone(&refused);
        tasks.spawn(async move {
            let mut claim = redis.claim(spec(&name)).unwrap();
            for _ in 0..20 {
                let error = claim.attempt(Wait::Queue).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                refused.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(refused.load(Ordering::Relaxed), 1000);
    // Once in each 200 ms.
    let questions = 2 + start.elapsed().as_millis() / 200;
    for (node, (connected, asked)) in nodes.cluster.nodes()[..DEAD].iter().zip(before) {
        let opened = connections(node) - connected;
        assert!(opened <= 5, "{opened} connections");
        let asked = u128::try_from(map_requests(node) - asked).unwrap();
        assert!(
            asked <= questions,
            "asked {asked} times for the map, and {questions} times is enough"
        );
    }
}
