//! A Galera cluster of two MariaDB servers, both of which take writes.

use libtest_mimic::Failed;
use lockkit_fixture::GaleraCluster;
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{
    Rounds, choose, lasting, momentary,
    server::Server as _,
    sql::{Sql, Strategy},
};

const STOP_NODE: &str = "stop-node";
const KILL_CONNECTIONS: &str = "kill-connections";

/// A killed node can't come back, because that would need the programs of a state transfer.
#[derive(Debug)]
struct Galera {
    nodes: [Sql; 2],
    rounds: Rounds,
    stopped: Option<usize>,
}

pub(super) fn start() -> Result<Box<dyn Site>, Failed> {
    let [first, second] = GaleraCluster::start()?.into_nodes();
    let nodes = [Sql::on(first, Strategy::Optimistic)?, Sql::on(second, Strategy::Optimistic)?];
    for node in &nodes {
        // Without this, a node briefly reports the holder of a lock that was released on the other
        // node.
        node.run("SET GLOBAL wsrep_sync_wait=1")?;
    }
    Ok(Box::new(Galera { nodes, rounds: Rounds::default(), stopped: None }))
}

impl Site for Galera {
    fn name(&self) -> &str {
        "galera"
    }

    fn open(&mut self) -> Result<String, BoxError> {
        Ok(self.nodes[0].url(&self.rounds.next()))
    }

    fn more_urls(&self) -> Vec<String> {
        vec![self.nodes[1].url(&self.rounds.now())]
    }

    fn faults(&self) -> Vec<ServerFault> {
        vec![lasting(STOP_NODE, 200..=3_000), momentary(KILL_CONNECTIONS)]
    }

    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let node = choose(chance, self.nodes.len());
        match fault.kind {
            STOP_NODE => {
                self.nodes[node].process().pause()?;
                self.stopped = Some(node);
            }
            KILL_CONNECTIONS => _ = self.nodes[node].kill_connections()?,
            kind => return Err(format!("no fault of a cluster: {kind}").into()),
        }
        Ok(format!("node {node}"))
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        match self.stopped.take() {
            Some(node) => Ok(self.nodes[node].process().resume()?),
            None => Ok(()),
        }
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        self.nodes[0].leaks(&self.rounds.now())
    }
}
