//! Tests an operator's requests to several servers, and transfers there.

use std::{collections::BTreeSet, time::Duration};

use lockkit_core::{
    Kind,
    spi::{Admin as _, Backend as _, QueuePolicy, Released, Role, Transferred, Wait},
};
use lockkit_fixture::{SentinelGroup, SentinelOptions};
use tokio::time::timeout;

use crate::{cluster::Nodes, support::*};

async fn names(nodes: &Nodes, prefix: &str) -> BTreeSet<String> {
    let names = nodes.redis.names(Kind::Mutex, prefix).await.unwrap();
    let set: BTreeSet<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(set.len(), names.len(), "twice: {names:?}");
    set
}

#[tokio::test]
async fn c14_names_of_all_primaries_are_listed_each_once() {
    let nodes = Nodes::start().await;
    let all: BTreeSet<_> = (0..100).map(|n| format!("job {n}")).collect();
    let owners: BTreeSet<_> =
        all.iter().map(|name| nodes.cluster.owner_of(nodes.slot(name)).unwrap()).collect();
    assert_eq!(owners.len(), 3);
    let mut claims = Vec::new();
    for name in &all {
        let mut claim = nodes.claim(name);
        granted(claim.attempt(Wait::No).await);
        claims.push(claim);
    }
    assert_eq!(names(&nodes, "").await, all);
    let some = all.iter().filter(|name| name.starts_with("job 1")).cloned().collect();
    assert_eq!(names(&nodes, "job 1").await, some);
    // The list has names whose slot has moved since the map was drawn, too.
    let slot = nodes.slot("job 0");
    let to = (nodes.cluster.owner_of(slot).unwrap() + 1) % 3;
    let migration = nodes.cluster.begin_migration(slot, to).unwrap();
    nodes.cluster.move_keys(&migration).unwrap();
    nodes.cluster.finish_migration(migration).unwrap();
    assert_eq!(names(&nodes, "").await, all);
    for mut claim in claims {
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    assert_eq!(names(&nodes, "").await, BTreeSet::new());
}

#[tokio::test]
async fn c14_a_list_is_an_error_while_a_part_of_the_cluster_does_not_answer() {
    let mut nodes = Nodes::start().await;
    granted(nodes.claim("a").attempt(Wait::No).await);
    let dead = (nodes.cluster.owner_of(nodes.slot("a")).unwrap() + 1) % 3;
    nodes.cluster.node_mut(dead).kill().unwrap();
    let error = nodes.redis.names(Kind::Mutex, "").await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
}

#[tokio::test]
async fn c5_a_transfer_follows_its_slot_to_another_node() {
    let nodes = Nodes::start().await;
    let mut claim = nodes.claim("a");
    granted(claim.attempt(Wait::No).await);
    let (mut waiter, signal) = nodes.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);
    let slot = nodes.slot("a");
    let to = (nodes.cluster.owner_of(slot).unwrap() + 1) % 3;
    let migration = nodes.cluster.begin_migration(slot, to).unwrap();
    nodes.cluster.move_keys(&migration).unwrap();
    nodes.cluster.finish_migration(migration).unwrap();
    let answer = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap();
    assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
    assert_eq!(nodes.redis.probe().await.unwrap(), Role::Primary);
    assert_eq!(
        claim.transfer(&spec("a"), QueuePolicy::QueueFirst).await.unwrap(),
        Transferred::Yielded
    );
    timeout(SOON, wait_for(&mut waiter, &signal)).await.unwrap();
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    nodes.assert_clean().await;
}

/// As long as the keys are on two nodes, neither node can answer.
#[tokio::test]
async fn c5_a_transfer_of_a_half_moved_name_changes_nothing() {
    let nodes = Nodes::start().await;
    let mut claim = nodes.claim("a");
    granted(claim.attempt(Wait::No).await);
    let slot = nodes.slot("a");
    let from = nodes.cluster.owner_of(slot).unwrap();
    let migration = nodes.cluster.begin_migration(slot, (from + 1) % 3).unwrap();
    let error = claim.transfer(&spec("a"), QueuePolicy::TransferFirst).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    nodes.cluster.move_keys(&migration).unwrap();
    nodes.cluster.finish_migration(migration).unwrap();
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    nodes.assert_clean().await;
}

#[tokio::test]
async fn c14_the_primary_that_sentinels_name_is_asked() {
    let group = SentinelGroup::start_with(
        SentinelOptions::default().with_down_after(Duration::from_secs(3600)),
    );
    let group = group.unwrap();
    let redis = connect(&group.url()).await.unwrap();
    assert_eq!(redis.probe().await.unwrap(), Role::Primary);
    let mut claim = redis.claim(spec("a")).unwrap();
    granted(claim.attempt(Wait::No).await);
    let answer = claim.transfer(&spec("a"), QueuePolicy::QueueFirst).await.unwrap();
    assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
    assert_eq!(redis.names(Kind::Mutex, "").await.unwrap(), [mutex("a")]);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}
