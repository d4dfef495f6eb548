//! A Redis Cluster: servers that share the keys among themselves.

mod migration;
mod view;

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

pub use self::migration::SlotMigration;
use self::view::View;
use super::{
    options::RedisOptions,
    server::{RedisServer, START_TIMEOUT},
    wait::wait_for,
};
use crate::ports;

const SLOTS: u16 = 16_384;
const MASTERS: usize = 3;
/// The difference between a node's port and its port for the other nodes.
const BUS: u16 = 10_000;
/// With this limit, the other port is also below the range of outgoing connections.
const LAST_PORT: u16 = 22_000;
/// The servers give up a takeover from a live master after 5 s, without a message. Then it is asked
/// for again. The same holds after a refusal, because a replica learns of its master's end with a
/// delay.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(6);

/// How to run a cluster.
///
/// # Default
/// * no replicas.
/// * node timeout 2 s.
/// * nodes as of [`RedisOptions`].
#[derive(Clone, Debug)]
pub struct RedisClusterOptions {
    replicas: bool,
    node_timeout: Duration,
    nodes: RedisOptions,
}

impl Default for RedisClusterOptions {
    fn default() -> Self {
        Self {
            replicas: false,
            node_timeout: Duration::from_secs(2),
            nodes: RedisOptions::default(),
        }
    }
}

impl RedisClusterOptions {
    /// One replica for each master: the node `3 + index` is the replica of the node `index`.
    #[must_use]
    pub fn with_replicas(mut self) -> Self {
        self.replicas = true;
        self
    }

    /// How long a node is silent until the others consider it down.
    #[must_use]
    pub fn with_node_timeout(mut self, node_timeout: Duration) -> Self {
        self.node_timeout = node_timeout;
        self
    }

    /// How to run the nodes.
    #[must_use]
    pub fn with_nodes(mut self, nodes: RedisOptions) -> Self {
        self.nodes = nodes;
        self
    }
}

/// A cluster with 3 masters, killed when this value is dropped.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster, and waits until all nodes agree on the owner of each slot.
    ///
    /// # Errors
    /// As for [`RedisServer::start`], or the nodes don't agree.
    pub fn start() -> Result<Self> {
        Self::start_with(RedisClusterOptions::default())
    }

    /// As [`start`](Self::start), with these options.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with(options: RedisClusterOptions) -> Result<Self> {
        let timeout = options.node_timeout.as_millis().to_string();
        // A replica is promoted however long it has not heard from its master, and it stays with
        // that master.
        let cluster = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"];
        let failover =
            ["--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no"];
        let node = options.nodes.with_args(cluster).with_args(failover);
        let node = node.with_args(["--cluster-node-timeout", &timeout]);
        let count = if options.replicas { 2 * MASTERS } else { MASTERS };
        let start = || RedisServer::start_on(port_with_bus, node.clone());
        let this = Self { nodes: (0..count).map(|_| start()).collect::<Result<_>>()? };
        this.form()?;
        Ok(this)
    }

    /// Introduces the nodes to each other and deals the slots out.
    fn form(&self) -> Result<()> {
        for (index, node) in (0..).zip(&self.nodes[..MASTERS]) {
            let share = |index: usize| index * usize::from(SLOTS) / MASTERS;
            let slots = (share(index)..share(index + 1)).map(|slot| slot.to_string());
            node.ask(["CLUSTER".to_owned(), "ADDSLOTS".to_owned()].into_iter().chain(slots))?;
            // While the epochs are equal, nodes argue about whose view is newer.
            node.ask(["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()])?;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[..index] {
                node.ask(["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()])?;
            }
        }
        wait_for("acquaintance of the nodes", START_TIMEOUT, || {
            let known = self
                .nodes
                .iter()
                .map(|node| Ok(View::of(node)?.known()))
                .collect::<Result<Vec<_>>>()?;
            Ok(known.iter().all(|&known| known == self.nodes.len()).then_some(()))
        })?;
        for (master, replica) in self.nodes.iter().zip(&self.nodes[MASTERS..]) {
            replica.ask(["CLUSTER", "REPLICATE", &View::of(master)?.id])?;
            replica.wait_in_sync()?;
        }
        self.wait_settled(START_TIMEOUT)
    }

    /// The URL of the masters. The caller adds a password.
    #[must_use]
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.nodes[..MASTERS].iter().map(RedisServer::addr).collect();
        format!("redis+cluster://{}/", nodes.join(","))
    }

    /// The nodes: the masters, then the replicas, as they were at the start.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The node `index`, for a test that kills and restarts it. It comes back as the same member of
    /// the cluster with its slots. Its data is lost unless a master has it.
    ///
    /// # Panics
    /// There is no such node.
    #[must_use]
    pub fn node_mut(&mut self, index: usize) -> &mut RedisServer {
        &mut self.nodes[index]
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// When no node answers.
    pub fn slot_of(&self, key: &str) -> Result<u16> {
        let mut replies =
            self.nodes.iter().filter_map(|node| node.peek(["CLUSTER", "KEYSLOT", key]).ok());
        Ok(replies.next().context("no node answers")?.text().parse()?)
    }

    /// The index of the node that considers itself the master of the slot. If there are several,
    /// the latest one.
    ///
    /// # Errors
    /// When no answering node owns the slot.
    pub fn owner_of(&self, slot: u16) -> Result<usize> {
        let views = self
            .nodes
            .iter()
            .enumerate()
            .filter_map(|(index, node)| Some((index, View::of(node).ok()?)));
        let owners = views.filter(|(_, view)| view.owns(slot));
        let latest = owners.max_by_key(|(_, view)| view.epoch);
        Ok(latest.with_context(|| format!("no node that answers owns the slot {slot}"))?.0)
    }

    /// Lets the replica `index` take over from its master, and waits until it has.
    ///
    /// From a live master no write is lost. From a dead one the replica takes over at once, without
    /// the other masters' notice: as the administrator's last resort (`TAKEOVER`).
    ///
    /// # Errors
    /// When that takes more than a minute.
    pub fn failover(&self, index: usize) -> Result<()> {
        let replica = &self.nodes[index];
        let mut asked: Option<Instant> = None;
        wait_for("the replica's takeover", START_TIMEOUT, || {
            if replica.is_primary()? {
                return Ok(Some(()));
            }
            if asked.is_none_or(|at| at.elapsed() > TAKEOVER_TIMEOUT) {
                asked = Some(Instant::now());
                replica.ask(takeover_of(replica)?)?;
            }
            Ok(None)
        })
    }

    /// Waits until a replica has taken over the slot from the node `old`, by the vote of the
    /// masters. Returns its index.
    ///
    /// # Errors
    /// When that takes longer than `timeout`.
    pub fn wait_for_new_owner(&self, slot: u16, old: usize, timeout: Duration) -> Result<usize> {
        wait_for("a new master", timeout, || {
            let owner = self.owner_of(slot)?;
            Ok((owner != old).then_some(owner))
        })
    }

    /// Waits until every node that answers serves, and all of them name the same owner for each
    /// slot, with the same epoch.
    ///
    /// # Errors
    /// When that takes longer than `timeout`.
    pub fn wait_settled(&self, timeout: Duration) -> Result<()> {
        wait_for("agreement of the cluster", timeout, || {
            let mut owners = Vec::new();
            for node in &self.nodes {
                let Ok(info) = node.peek(["CLUSTER", "INFO"]) else { continue };
                if !info.text().contains("cluster_state:ok") {
                    return Ok(None);
                }
                owners.push(View::of(node)?.owners());
            }
            let agreed = owners.windows(2).all(|pair| pair[0] == pair[1]);
            Ok((agreed && !owners.is_empty()).then_some(()))
        })
    }
}

/// A port whose companion for the other nodes is also free.
fn port_with_bus() -> Result<u16> {
    loop {
        let port = ports::free()?;
        if port < LAST_PORT && TcpListener::bind(("127.0.0.1", port + BUS)).is_ok() {
            return Ok(port);
        }
    }
}

fn takeover_of(replica: &RedisServer) -> Result<&'static [&'static str]> {
    let master_lives =
        replica.ask(["INFO", "replication"])?.text().contains("master_link_status:up");
    Ok(if master_lives { &["CLUSTER", "FAILOVER"] } else { &["CLUSTER", "FAILOVER", "TAKEOVER"] })
}

#[cfg(test)]
mod tests;
