//! An ensemble of ZooKeeper servers.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, SocketAddr},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::{
    options::ZooKeeperOptions,
    server::{Member, PORT_ATTEMPTS, Progress, START_TIMEOUT, ZooKeeperServer},
};
use crate::ports;

/// With the limits below, followers and leader separate when one is silent for 2 s. On two busy
/// cores a JVM stalls for hundreds of milliseconds. Shorter limits would cause elections for no
/// reason.
const TICK: Duration = Duration::from_millis(500);
const SYNC_TICKS: u32 = 4;
/// For the first contact with a leader, while all the JVMs start at once.
const INIT_TICKS: u32 = 20;
const POLL: Duration = Duration::from_millis(10);

/// An ensemble of ZooKeeper servers on 127.0.0.1, killed when this value is dropped.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    nodes: Vec<ZooKeeperServer>,
}

/// The addresses of a node of an ensemble, and the command that runs it.
#[derive(Debug)]
pub(super) struct Place {
    /// The address for clients.
    pub(super) addr: SocketAddr,
    /// The ports for the other nodes: one to follow the leader, and one to elect it.
    pub(super) quorum_port: u16,
    pub(super) election_port: u16,
    /// The command that runs Java.
    pub(super) wrapper: Vec<OsString>,
}

impl ZooKeeperEnsemble {
    /// Starts `nodes` servers and waits until all of them serve.
    ///
    /// # Errors
    /// As for [`ZooKeeperServer::start`], or the servers do not agree on a leader.
    pub fn start(nodes: usize, options: ZooKeeperOptions) -> Result<Self> {
        for _ in 0..PORT_ATTEMPTS {
            let places = (0..nodes).map(|_| Place::on_loopback()).collect::<Result<Vec<_>>>()?;
            if let Some(ensemble) = Self::start_at(&places, &options)? {
                return Ok(ensemble);
            }
        }
        bail!("a ZooKeeper ensemble found no free ports in {PORT_ATTEMPTS} attempts")
    }

    /// Starts a server at each place; `None` if a port was taken.
    pub(super) fn start_at(places: &[Place], options: &ZooKeeperOptions) -> Result<Option<Self>> {
        let mut config = vec![format!("initLimit={INIT_TICKS}"), format!("syncLimit={SYNC_TICKS}")];
        config.extend((1..).zip(places).map(|(id, place): (u8, _)| {
            format!("server.{id}={}:{}:{}", place.addr.ip(), place.quorum_port, place.election_port)
        }));
        let mut nodes = Vec::new();
        for (id, place) in (1..).zip(places) {
            let member = Member { id, config: config.clone(), wrapper: place.wrapper.clone() };
            nodes.push(ZooKeeperServer::spawn(
                options,
                options.tick_or(TICK),
                place.addr,
                Some(member),
            )?);
        }
        let mut ensemble = Self { nodes };
        Ok(ensemble.wait_for_start()?.then_some(ensemble))
    }

    /// The servers.
    #[must_use]
    pub fn nodes(&self) -> &[ZooKeeperServer] {
        &self.nodes
    }

    /// The server `index`, from 0.
    ///
    /// # Panics
    /// There is no such server.
    #[must_use]
    pub fn node(&self, index: usize) -> &ZooKeeperServer {
        &self.nodes[index]
    }

    /// The server `index`, for a test that kills and restarts it.
    ///
    /// # Panics
    /// There is no such server.
    #[must_use]
    pub fn node_mut(&mut self, index: usize) -> &mut ZooKeeperServer {
        &mut self.nodes[index]
    }

    /// The URL of all the servers.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<_> = self.nodes.iter().map(|node| node.addr().to_string()).collect();
        format!("zk://{}/", hosts.join(","))
    }

    /// Waits until exactly one server says that it leads, and returns its index.
    ///
    /// A leader that has just lost its followers still says that it leads, until it notices the
    /// loss after up to 4 ticks.
    ///
    /// # Errors
    /// When none or several lead for as long as a start may take.
    pub fn leader(&self) -> Result<usize> {
        self.leader_among(|_| true)
    }

    /// As [`leader`](Self::leader), but ignores the server `index`: for a server that was killed,
    /// paused or cut off.
    ///
    /// # Errors
    /// As for [`leader`](Self::leader).
    pub fn leader_other_than(&self, index: usize) -> Result<usize> {
        self.leader_among(|candidate| candidate != index)
    }

    /// The servers that say now that they follow a leader.
    #[must_use]
    pub fn followers(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|&index| self.says(index, "follower")).collect()
    }

    /// Waits until every server leads or follows the leader.
    ///
    /// # Errors
    /// When a server does not for as long as a start may take.
    pub fn wait_until_whole(&self) -> Result<()> {
        let whole = || {
            (self.leaders(|_| true).len() + self.followers().len() == self.nodes.len())
                .then_some(())
        };
        poll(whole).with_context(|| self.state())
    }

    fn leader_among(&self, eligible: impl Fn(usize) -> bool) -> Result<usize> {
        let one = || <[usize; 1]>::try_from(self.leaders(&eligible)).ok();
        poll(one).map(|[leader]| leader).with_context(|| self.state())
    }

    fn leaders(&self, eligible: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|&index| eligible(index) && self.says(index, "leader"))
            .collect()
    }

    fn says(&self, index: usize, mode: &str) -> bool {
        self.nodes[index].probe_mode().is_ok_and(|found| found.as_deref() == Some(mode))
    }

    fn state(&self) -> String {
        let states = self.nodes.iter().map(|node| match node.probe_mode() {
            Ok(Some(mode)) => format!("{} is {mode}", node.addr()),
            Ok(None) => format!("{} serves no client", node.addr()),
            Err(error) => format!("{error:#}"),
        });
        format!(
            "the ensemble is not as it was waited for: {}",
            states.collect::<Vec<_>>().join("; ")
        )
    }

    /// Waits until all servers serve. Returns false if a port was taken.
    fn wait_for_start(&mut self) -> Result<bool> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let mut all = true;
            for node in &mut self.nodes {
                // A server that cannot get its port for the quorum lives on, and retries for ever.
                if node.progress()? == Progress::PortTaken || node.was_refused_a_port() {
                    return Ok(false);
                }
                all = all && node.probe_mode().is_ok_and(|mode| mode.is_some());
            }
            if all {
                return Ok(true);
            }
            if Instant::now() > deadline {
                let logs: Vec<_> = self.nodes.iter().map(ZooKeeperServer::log_tail).collect();
                bail!("{}; their logs:\n{}", self.state(), logs.join("\n\n"));
            }
            thread::sleep(POLL);
        }
    }
}

impl Place {
    fn on_loopback() -> Result<Self> {
        Ok(Self {
            addr: (Ipv4Addr::LOCALHOST, ports::free()?).into(),
            quorum_port: ports::free()?,
            election_port: ports::free()?,
            wrapper: Vec::new(),
        })
    }
}

/// Waits until the condition has a value, for as long as a start may take.
pub(super) fn poll<T>(mut condition: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("not within {START_TIMEOUT:?}");
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::test_client::create, *};

    /// A server may stall for seconds, so the others must miss it only after four ticks.
    fn start() -> ZooKeeperEnsemble {
        ZooKeeperEnsemble::start(3, ZooKeeperOptions::default().with_tick(Duration::from_secs(2)))
            .unwrap()
    }

    #[test]
    fn three_servers_elect_another_leader_after_a_kill() {
        let mut ensemble = start();
        let leader = ensemble.leader().unwrap();
        let followers = ensemble.followers();
        assert_eq!(followers.len(), 2);
        assert!(!followers.contains(&leader));
        let hosts = ensemble
            .nodes()
            .iter()
            .map(|node| node.addr().to_string())
            .collect::<Vec<_>>()
            .join(",");
        assert_eq!(ensemble.url(), format!("zk://{hosts}/"));

        create(ensemble.node(followers[0]).addr(), "/by-a-follower");
        ensemble.node_mut(leader).kill().unwrap();
        let next = ensemble.leader_other_than(leader).unwrap();
        assert_ne!(next, leader);
        assert_eq!(ensemble.leader().unwrap(), next);
        create(ensemble.node(next).addr(), "/by-the-next-leader");

        ensemble.node_mut(leader).restart().unwrap();
        ensemble.wait_until_whole().unwrap();
        // A follower may serve before it has applied the last write that the others acknowledged.
        poll(|| {
            let nodes = ensemble.nodes().iter().map(|node| node.metric("zk_znode_count").unwrap());
            let nodes: Vec<_> = nodes.collect();
            (nodes == [nodes[0]; 3]).then_some(())
        })
        .expect("what was written meanwhile got to all");
    }

    #[test]
    fn no_server_serves_without_a_majority() {
        let ensemble = start();
        let leader = ensemble.leader().unwrap();
        let followers = ensemble.followers();
        for &follower in &followers {
            ensemble.node(follower).pause().unwrap();
        }
        poll(|| ensemble.node(leader).mode().unwrap().is_none().then_some(())).unwrap();
        for &follower in &followers {
            ensemble.node(follower).resume().unwrap();
        }
        ensemble.wait_until_whole().unwrap();
    }
}
