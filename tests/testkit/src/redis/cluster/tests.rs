use super::*;
use crate::redis::{RedisReply, valkey_server};

const TIMEOUT: Duration = Duration::from_secs(120);
/// A node may stall for seconds, and the others must not consider it down.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// A node that is none of these two.
fn third(one: usize, other: usize) -> usize {
    (0..MASTERS).find(|&node| node != one && node != other).unwrap()
}

fn refusal(reply: RedisReply) -> String {
    match reply {
        RedisReply::Error(text) => text,
        other => panic!("{other:?} is no refusal"),
    }
}

#[test]
fn a_key_lives_on_one_node_and_moves_with_its_slot() {
    let nodes = RedisOptions::default().with_password("secret");
    let options = RedisClusterOptions::default().with_nodes(nodes).with_node_timeout(NODE_TIMEOUT);
    let mut cluster = RedisCluster::start_with(options).unwrap();
    assert_eq!(cluster.url().matches("127.0.0.1:").count(), 3);
    let slot = cluster.slot_of("a").unwrap();
    let from = cluster.owner_of(slot).unwrap();
    let to = (from + 1) % MASTERS;
    let moved = |cluster: &RedisCluster, owner: usize| {
        format!("MOVED {slot} {}", cluster.nodes()[owner].addr())
    };
    cluster.nodes()[from].ask(["SET", "a", "b"]).unwrap();
    for other in [to, third(from, to)] {
        let reply = cluster.nodes()[other].command(["GET", "a"]).unwrap();
        assert_eq!(refusal(reply), moved(&cluster, from));
    }

    let migration = cluster.begin_migration(slot, to).unwrap();
    assert_eq!(cluster.nodes()[from].ask(["GET", "a"]).unwrap().text(), "b", "not moved yet");
    cluster.move_keys(&migration).unwrap();
    let ask = refusal(cluster.nodes()[from].command(["GET", "a"]).unwrap());
    assert_eq!(ask, format!("ASK {slot} {}", cluster.nodes()[to].addr()));
    assert_eq!(cluster.owner_of(slot).unwrap(), from, "under way is not arrived");
    cluster.finish_migration(migration).unwrap();
    assert_eq!(cluster.nodes()[to].ask(["GET", "a"]).unwrap().text(), "b");
    assert_eq!(refusal(cluster.nodes()[from].command(["GET", "a"]).unwrap()), moved(&cluster, to));
    cluster.wait_settled(TIMEOUT).unwrap();

    cluster.migrate_slot(slot, from).unwrap();
    let migration = cluster.begin_migration(slot, to).unwrap();
    cluster.abandon_migration(migration).unwrap();
    assert_eq!(cluster.nodes()[from].ask(["GET", "a"]).unwrap().text(), "b");

    let id = View::of(&cluster.nodes()[from]).unwrap().id;
    cluster.node_mut(from).restart().unwrap();
    assert_eq!(View::of(&cluster.nodes()[from]).unwrap().id, id, "another member");
    cluster.wait_settled(TIMEOUT).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap(), from);
    assert_eq!(cluster.nodes()[from].ask(["GET", "a"]).unwrap(), RedisReply::Nil);
}

#[test]
fn a_replica_takes_over_on_command_and_when_its_master_is_killed() {
    let options = RedisClusterOptions::default().with_replicas().with_node_timeout(NODE_TIMEOUT);
    let mut cluster = RedisCluster::start_with(options).unwrap();
    assert_eq!(cluster.nodes().len(), 6);
    let slot = cluster.slot_of("a").unwrap();
    let master = cluster.owner_of(slot).unwrap();
    let replica = MASTERS + master;
    cluster.failover(replica).unwrap();
    cluster.wait_settled(TIMEOUT).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap(), replica);

    cluster.nodes()[master].wait_in_sync().unwrap();
    cluster.node_mut(replica).kill().unwrap();
    assert_eq!(cluster.wait_for_new_owner(slot, replica, TIMEOUT).unwrap(), master);
    cluster.node_mut(replica).restart().unwrap();
    cluster.wait_settled(TIMEOUT).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap(), master);

    cluster.nodes()[replica].wait_in_sync().unwrap();
    cluster.node_mut(master).kill().unwrap();
    cluster.failover(replica).unwrap();
    cluster.wait_settled(TIMEOUT).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap(), replica);
}

#[test]
fn a_cluster_of_valkey_servers_with_clocks_of_their_own_forms_too() {
    let Some(program) = valkey_server() else {
        eprintln!("not tested: there is no valkey-server");
        return;
    };
    let nodes = RedisOptions::default().with_program(program).with_clock();
    let options = RedisClusterOptions::default().with_nodes(nodes).with_node_timeout(NODE_TIMEOUT);
    let cluster = RedisCluster::start_with(options).unwrap();
    let slot = cluster.slot_of("a").unwrap();
    let owner = cluster.owner_of(slot).unwrap();
    cluster.nodes()[owner].ask(["SET", "a", "b"]).unwrap();
    cluster.migrate_slot(slot, (owner + 1) % MASTERS).unwrap();
    assert_eq!(cluster.nodes()[(owner + 1) % MASTERS].ask(["GET", "a"]).unwrap().text(), "b");
}

/// Catches a migration that does not wait until the nodes know each other's epochs.
#[test]
fn a_master_takes_a_slot_with_the_newest_epoch() {
    let cluster = RedisCluster::start().unwrap();
    let slot = cluster.slot_of("a").unwrap();
    let mut owner = cluster.owner_of(slot).unwrap();
    let mut newest = 0;
    for _ in 0..100 {
        owner = (owner + 1) % MASTERS;
        cluster.migrate_slot(slot, owner).unwrap();
        let epoch = View::of(&cluster.nodes()[owner]).unwrap().epoch;
        assert!(epoch > newest, "{epoch} after {newest}");
        newest = epoch;
    }
    cluster.wait_settled(TIMEOUT).unwrap();
    assert_eq!(cluster.owner_of(slot).unwrap(), owner);
}
