//! Three ZooKeeper servers that agree, each in a network of its own where the system allows that.

use libtest_mimic::Failed;
use lockkit_fixture::{NamespacedEnsemble, ZooKeeperEnsemble, ZooKeeperOptions};
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{
    Rounds, choose, lasting, left_out,
    zookeeper::{LONGEST_SESSION, SESSION, leaks},
};

const CUT_FOLLOWER: &str = "cut-follower";
const CUT_LEADER: &str = "cut-leader";
const ISOLATE: &str = "isolate";
const KILL_FOLLOWER: &str = "kill-follower";
const KILL_LEADER: &str = "kill-leader";
const STOP_FOLLOWER: &str = "stop-follower";
const STOP_LEADER: &str = "stop-leader";

const NODES: usize = 3;

#[derive(Debug)]
struct Ensemble {
    servers: NamespacedEnsemble,
    rounds: Rounds,
    struck: Option<Struck>,
}

#[derive(Debug)]
enum Struck {
    Cut,
    Killed(usize),
    Stopped(usize),
}

pub(super) fn start() -> Result<Box<dyn Site>, Failed> {
    let options = ZooKeeperOptions::default().with_config(LONGEST_SESSION);
    let servers = match NamespacedEnsemble::is_possible() {
        Ok(()) => NamespacedEnsemble::start(NODES, options)?,
        Err(reason) => {
            left_out("zookeeper-ensemble: cuts of the network", &reason);
            NamespacedEnsemble::on_loopback(ZooKeeperEnsemble::start(NODES, options)?)
        }
    };
    Ok(Box::new(Ensemble { servers, rounds: Rounds::default(), struck: None }))
}

impl Site for Ensemble {
    fn name(&self) -> &str {
        "zookeeper-ensemble"
    }

    fn open(&mut self) -> Result<String, BoxError> {
        let url = self.servers.url();
        Ok(format!("{url}?prefix={}&session_timeout={SESSION}", self.rounds.next()))
    }

    /// No fault breaks a promise: a majority has all answered requests, and a leader without a
    /// majority serves no client.
    fn faults(&self) -> Vec<ServerFault> {
        // The followers give up a leader after 2 s.
        let mut faults = vec![
            lasting(KILL_FOLLOWER, 0..=1_500),
            lasting(STOP_FOLLOWER, 200..=4_000),
            lasting(KILL_LEADER, 0..=1_500),
            lasting(STOP_LEADER, 200..=4_000),
        ];
        if self.servers.is_cuttable() {
            faults.extend([
                lasting(CUT_FOLLOWER, 200..=4_000),
                lasting(CUT_LEADER, 200..=4_000),
                lasting(ISOLATE, 200..=4_000),
            ]);
        }
        faults
    }

    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let leader = self.servers.leader()?;
        let follower = (leader + 1 + choose(chance, NODES - 1)) % NODES;
        let (node, role) = match fault.kind {
            CUT_LEADER | KILL_LEADER | STOP_LEADER => (leader, "the leader"),
            ISOLATE if choose(chance / 2, NODES) == 0 => (leader, "the leader"),
            _ => (follower, "a follower"),
        };
        let struck = match fault.kind {
            KILL_FOLLOWER | KILL_LEADER => {
                self.servers.node_mut(node).kill()?;
                Struck::Killed(node)
            }
            STOP_FOLLOWER | STOP_LEADER => {
                self.servers.node(node).pause()?;
                Struck::Stopped(node)
            }
            CUT_FOLLOWER | CUT_LEADER => {
                self.servers.cut(node)?;
                Struck::Cut
            }
            ISOLATE => {
                self.servers.isolate(node)?;
                Struck::Cut
            }
            kind => return Err(format!("no fault of an ensemble: {kind}").into()),
        };
        self.struck = Some(struck);
        Ok(format!("server {node}, {role}"))
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        match self.struck.take() {
            None => return Ok(()),
            Some(Struck::Cut) => self.servers.heal()?,
            Some(Struck::Killed(node)) => self.servers.node_mut(node).restart()?,
            Some(Struck::Stopped(node)) => self.servers.node(node).resume()?,
        }
        Ok(self.servers.wait_until_whole()?)
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        let leader = self.servers.leader()?;
        leaks(self.servers.node(leader), &self.rounds.now())
    }
}
