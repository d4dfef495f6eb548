//! Three ZooKeepers whose leader is cut off from its followers. They elect another one, and the
//! deposed leader goes on to answer its clients: the connections of these break, and it takes their
//! sessions up again by itself.

use std::{thread, time::Duration};

use libtest_mimic::Failed;
use lockkit_conformance::proxy::Proxy;
use lockkit_fixture::{NamespacedEnsemble, ZooKeeperOptions};
use lockkit_torture::site::{BoxError, ServerFault, Site};
use tokio::runtime::{Builder, Runtime};

use super::{Rounds, lasting, zookeeper::leaks};

const DEPOSE: &str = "depose-leader";

const NODES: usize = 3;
/// So long that holders still believe when the successor starts; servers give no more than 20
/// ticks.
const SESSION: &str = "5s";
/// Sessions end up to a tick late, which hides a lease that is too long by less.
const TICK: Duration = Duration::from_millis(250);
/// In ticks: for 20 s a leader does not notice that its followers are gone.
const PATIENCE: &str = "syncLimit=80";
/// In ticks, for the first contact of servers that all start at once.
const CONTACT: &str = "initLimit=80";
/// From the start of the successor to the end of the connections: later than a tick, and while
/// holders believe.
const RECONNECT_MS: std::ops::Range<u64> = 300..1_300;

/// Each process uses one server, and comes back to it.
#[derive(Debug)]
struct Deposed {
    ways: Vec<Proxy>,
    servers: NamespacedEnsemble,
    rounds: Rounds,
    is_cut: bool,
    // What the ways run on.
    _runtime: Runtime,
}

pub(super) fn start() -> Result<Box<dyn Site>, Failed> {
    let options =
        ZooKeeperOptions::default().with_tick(TICK).with_config(PATIENCE).with_config(CONTACT);
    let servers = NamespacedEnsemble::start(NODES, options)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let addresses = servers.nodes().iter().map(|node| node.addr());
    let ways =
        addresses.map(|addr| runtime.block_on(Proxy::start(addr))).collect::<Result<_, _>>()?;
    let rounds = Rounds::default();
    let is_cut = false;
    Ok(Box::new(Deposed { ways, servers, rounds, is_cut, _runtime: runtime }))
}

impl Deposed {
    fn url(&self, way: &Proxy) -> String {
        format!("zk://{}/?prefix={}&session_timeout={SESSION}", way.addr(), self.rounds.now())
    }
}

impl Site for Deposed {
    fn name(&self) -> &str {
        "zookeeper-deposed"
    }

    fn open(&mut self) -> Result<String, BoxError> {
        self.rounds.next();
        Ok(self.url(&self.ways[0]))
    }

    fn more_urls(&self) -> Vec<String> {
        self.ways[1..].iter().map(|way| self.url(way)).collect()
    }

    fn faults(&self) -> Vec<ServerFault> {
        // Until the successor has ended the sessions of the other one's clients, or before.
        vec![lasting(DEPOSE, 3_000..=9_000)]
    }

    fn strike(&mut self, _: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let leader = self.servers.leader()?;
        let followers = self.servers.followers();
        self.is_cut = true;
        self.servers.cut(leader)?;
        // Restarted followers elect at once: else they wait for the leader as long as it does for
        // them.
        for &follower in &followers {
            self.servers.node_mut(follower).kill()?;
        }
        for &follower in &followers {
            self.servers.node_mut(follower).restart()?;
        }
        let successor = self.servers.leader_other_than(leader)?;
        let span = RECONNECT_MS.end - RECONNECT_MS.start;
        thread::sleep(Duration::from_millis(RECONNECT_MS.start + chance % span));
        self.ways[leader].reset_all();
        Ok(format!("server {leader}, the leader, followed by {successor}"))
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        if std::mem::take(&mut self.is_cut) {
            self.servers.heal()?;
            // Until the deposed one has noticed, both say that they lead.
            self.servers.leader()?;
            self.servers.wait_until_whole()?;
        }
        Ok(())
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        let leader = self.servers.leader()?;
        leaks(self.servers.node(leader), &self.rounds.now())
    }
}
