//! A Redis Cluster of three masters with a replica each.

use std::{
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_fixture::{RedisCluster, RedisClusterOptions, RedisReply, SlotMigration};
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{Rounds, choose, lasting, redis, weak};

const FAIL_OVER: &str = "failover";
const KILL_MASTER: &str = "kill-master";
const KILL_REPLICA: &str = "kill-replica";
const MOVE_SLOT: &str = "move-slot";

const SETTLED: Duration = Duration::from_secs(60);
/// After 5 s, a requested failover has ended, with or without success.
const GIVEN_UP: Duration = Duration::from_millis(5_200);
const POLL: Duration = Duration::from_millis(20);
const SLOTS: u64 = 16_384;

#[derive(Debug)]
struct Cluster {
    cluster: RedisCluster,
    rounds: Rounds,
    struck: Option<Struck>,
}

#[derive(Debug)]
enum Struck {
    FailingOver(usize),
    Killed { node: usize, slot: Option<u16> },
    Moving(SlotMigration),
}

pub(super) fn start() -> Result<Box<dyn Site>, Failed> {
    let cluster = RedisCluster::start_with(RedisClusterOptions::default().with_replicas())?;
    Ok(Box::new(Cluster { cluster, rounds: Rounds::default(), struck: None }))
}

impl Cluster {
    /// The nodes that act as masters, or as replicas.
    fn nodes(&self, masters: bool) -> Result<Vec<usize>, BoxError> {
        let mut found = Vec::new();
        for (index, node) in self.cluster.nodes().iter().enumerate() {
            let deadline = Instant::now() + SETTLED;
            let is_master = loop {
                match node.is_primary() {
                    Ok(is_master) => break is_master,
                    Err(error) if Instant::now() > deadline => {
                        return Err(format!("{error:#}").into());
                    }
                    // The node may be busy with its change of roles.
                    Err(_) => thread::sleep(POLL),
                }
            };
            if is_master == masters {
                found.push(index);
            }
        }
        Ok(found)
    }

    /// One slot of a node.
    fn slot_of(&self, node: usize) -> Result<u16, BoxError> {
        let shards = self.cluster.nodes()[node].ask(["CLUSTER", "SHARDS"])?;
        let port = self.cluster.nodes()[node].port().to_string();
        for shard in shards.elements() {
            let [_, slots, _, nodes] = shard.elements() else { continue };
            let is_here =
                |node: &RedisReply| node.elements().iter().any(|field| field.text() == port);
            if nodes.elements().iter().any(is_here)
                && let Some(first) = slots.elements().first()
            {
                return Ok(first.text().parse()?);
            }
        }
        Err(format!("node {node} has no slot").into())
    }

    /// The slot of a name of this round, if there is one yet.
    fn slot_in_use(&self, chance: u64) -> Result<u16, BoxError> {
        let mut keys = Vec::new();
        for node in self.nodes(true)? {
            let found =
                self.cluster.nodes()[node].ask(["KEYS", &format!("{}:*", self.rounds.now())])?;
            keys.extend(found.elements().iter().map(RedisReply::text));
        }
        keys.sort();
        Ok(match keys.get(choose(chance, keys.len())) {
            Some(key) => self.cluster.slot_of(key)?,
            None => u16::try_from(chance % SLOTS)?,
        })
    }

    fn ask_to_take_over(&self, replica: usize) -> Result<(), BoxError> {
        Ok(self.cluster.nodes()[replica].ask(["CLUSTER", "FAILOVER"]).map(drop)?)
    }

    /// Waits for the takeover, and asks again when a failover was given up. The masters don't vote
    /// for the same replica twice within 4 s, and the replica does not ask them twice within 8 s.
    fn wait_for_takeover(&self, replica: usize) -> Result<(), BoxError> {
        let start = Instant::now();
        let mut asked = Instant::now();
        while !self.cluster.nodes()[replica].is_primary().unwrap_or(false) {
            if start.elapsed() > SETTLED {
                return Err(format!("node {replica} did not take over within {SETTLED:?}").into());
            }
            if asked.elapsed() > GIVEN_UP {
                self.ask_to_take_over(replica)?;
                asked = Instant::now();
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Waits until there are as many masters as replicas, each replica has its master's data, and
    /// all nodes agree.
    fn wait_until_whole(&self) -> Result<(), BoxError> {
        let deadline = Instant::now() + SETTLED;
        while !self.is_whole().unwrap_or(false) {
            if Instant::now() > deadline {
                return Err(format!("the cluster is not whole after {SETTLED:?}").into());
            }
            thread::sleep(POLL);
        }
        Ok(self.cluster.wait_settled(SETTLED)?)
    }

    fn is_whole(&self) -> Result<bool, BoxError> {
        let mut replicas = 0;
        for node in self.cluster.nodes() {
            let info = node.ask(["INFO", "replication"])?.text();
            if info.contains("role:slave") {
                if !info.contains("master_link_status:up") {
                    return Ok(false);
                }
                replicas += 1;
            }
        }
        Ok(replicas * 2 == self.cluster.nodes().len())
    }
}

impl Site for Cluster {
    fn name(&self) -> &str {
        "redis-cluster"
    }

    fn open(&mut self) -> Result<String, BoxError> {
        // The URL names all nodes, because the first masters may be replicas by now.
        let nodes: Vec<_> =
            self.cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        Ok(format!("redis+cluster://{}/?prefix={}", nodes.join(","), self.rounds.next()))
    }

    fn faults(&self) -> Vec<ServerFault> {
        vec![
            lasting(MOVE_SLOT, 0..=1_000),
            lasting(KILL_REPLICA, 100..=1_500),
            // A live master waits until its replica has all data, so no grant is lost.
            lasting(FAIL_OVER, 0..=500),
            weak(
                lasting(KILL_MASTER, 0..=1_500),
                "a failover of a node that loses a grant, for the names in its slots",
            ),
        ]
    }

    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let masters = self.nodes(true)?;
        let (struck, target) = match fault.kind {
            FAIL_OVER => {
                let replicas = self.nodes(false)?;
                let replica = replicas[choose(chance, replicas.len())];
                self.ask_to_take_over(replica)?;
                (
                    Struck::FailingOver(replica),
                    format!("the master of node {replica}, which takes over"),
                )
            }
            KILL_MASTER => {
                let node = masters[choose(chance, masters.len())];
                let slot = Some(self.slot_of(node)?);
                self.cluster.node_mut(node).kill()?;
                (Struck::Killed { node, slot }, format!("node {node}, a master"))
            }
            KILL_REPLICA => {
                let replicas = self.nodes(false)?;
                let node = replicas[choose(chance, replicas.len())];
                self.cluster.node_mut(node).kill()?;
                (Struck::Killed { node, slot: None }, format!("node {node}, a replica"))
            }
            MOVE_SLOT => {
                let slot = self.slot_in_use(chance)?;
                let from = self.cluster.owner_of(slot)?;
                let others: Vec<_> = masters.into_iter().filter(|&node| node != from).collect();
                let to = others[choose(chance / SLOTS, others.len())];
                let migration = self.cluster.begin_migration(slot, to)?;
                (Struck::Moving(migration), format!("slot {slot}, from node {from} to node {to}"))
            }
            kind => return Err(format!("no fault of a cluster: {kind}").into()),
        };
        self.struck = Some(struck);
        Ok(target)
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        match self.struck.take() {
            None => return Ok(()),
            Some(Struck::FailingOver(replica)) => self.wait_for_takeover(replica)?,
            Some(Struck::Killed { node, slot }) => {
                if let Some(slot) = slot {
                    self.cluster.wait_for_new_owner(slot, node, SETTLED)?;
                }
                self.cluster.node_mut(node).restart()?;
            }
            Some(Struck::Moving(migration)) => {
                self.cluster.move_keys(&migration)?;
                self.cluster.finish_migration(migration)?;
            }
        }
        self.wait_until_whole()
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        let mut leaks = Vec::new();
        for node in self.nodes(true)? {
            leaks.extend(redis::leaks(&self.cluster.nodes()[node], &self.rounds.now())?);
        }
        Ok(leaks)
    }
}
