//! Three ZooKeeper servers whose leader is cut off from its followers. The followers elect another
//! leader, and the deposed leader continues to answer its clients. The connections of these clients
//! break, and the deposed leader resumes their sessions without asking its followers.

use std::{thread, time::Duration};

use libtest_mimic::Failed;
use lockkit_conformance::proxy::Proxy;
use lockkit_fixture::{NamespacedEnsemble, ZooKeeperOptions};
use lockkit_torture::site::{BoxError, ServerFault, Site};
use tokio::runtime::{Builder, Runtime};

use super::{Rounds, lasting, zookeeper::leaks};

const DEPOSE: &str = "depose-leader";

const NODES: usize = 3;
/// The session is so long that holders still believe in it when the successor starts. Servers give
/// no more than 20 ticks.
const SESSION: &str = "5s";
/// Sessions end up to a tick late, which hides a lease that is too long by less than a tick.
const TICK: Duration = Duration::from_millis(250);
/// In ticks: for 20 s, a leader does not notice the loss of its followers.
const PATIENCE: &str = "syncLimit=80";
/// In ticks: the time for the first contact of servers that all start at once.
const CONTACT: &str = "initLimit=80";
/// The time from the start of the successor to the end of the connections: later than a tick, and
/// while holders still believe.
const RECONNECT_MS: std::ops::Range<u64> = 300..1_300;

/// Each process uses one server, and reconnects to the same one.
#[derive(Debug)]
struct Deposed {
    ways: Vec<Proxy>,
    servers: NamespacedEnsemble,
    rounds: Rounds,
    is_cut: bool,
    // The runtime of the proxies.
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
        // The longest fault lasts until the successor has ended the sessions of the deposed
        // leader's clients.
        vec![lasting(DEPOSE, 3_000..=9_000)]
    }

    fn strike(&mut self, _: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let leader = self.servers.leader()?;
        let followers = self.servers.followers();
        self.is_cut = true;
        self.servers.cut(leader)?;
        // Restarted followers elect at once. Otherwise they wait for the leader as long as it waits
        // for them.
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
            // Until the deposed leader has noticed, two servers report that they lead.
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
