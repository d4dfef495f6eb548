//! An ensemble whose network can be cut.

use std::ops::{Deref, DerefMut};

use anyhow::{Context as _, Result};

use super::{
    ensemble::{Place, ZooKeeperEnsemble},
    options::ZooKeeperOptions,
};
use crate::network::{Network, TEST};

const CLIENT_PORT: u16 = 2181;
const QUORUM_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;

/// A [`ZooKeeperEnsemble`] with each server in a network namespace of its own, on Linux, as root.
///
/// The namespaces and all that joins them are gone when this value is dropped; what a killed process left behind is
/// removed by the next one that starts an ensemble.
#[derive(Debug)]
pub struct NamespacedEnsemble {
    // Dropped first: a namespace lives on while a process is in it.
    ensemble: ZooKeeperEnsemble,
    network: Network,
}

impl NamespacedEnsemble {
    /// Whether network namespaces can be made and joined here.
    ///
    /// # Errors
    /// The reason why not.
    pub fn is_possible() -> Result<(), String> {
        Network::is_possible()
    }

    /// Starts `nodes` servers and waits until all of them serve.
    ///
    /// # Errors
    /// As for [`ZooKeeperEnsemble::start`], or it [is not possible](Self::is_possible) here.
    pub fn start(nodes: usize, options: ZooKeeperOptions) -> Result<Self> {
        let network = Network::new(u8::try_from(nodes)?)?;
        let places = network.ends().filter(|&end| end != TEST).map(|host| Place {
            addr: (network.addr(host), CLIENT_PORT).into(),
            quorum_port: QUORUM_PORT,
            election_port: ELECTION_PORT,
            wrapper: network.wrapper(host),
        });
        let ensemble = ZooKeeperEnsemble::start_at(&places.collect::<Vec<_>>(), &options)?;
        let ensemble = ensemble.context("a port is taken in a namespace that has just been made")?;
        Ok(Self { ensemble, network })
    }

    /// Cuts the server `index` off from the other servers; clients still reach it. Packets vanish both ways, open
    /// connections stall.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn cut(&mut self, index: usize) -> Result<()> {
        self.network.cut_off(host(index)?)
    }

    /// Cuts the server `index` off from everything: the other servers and the clients.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn isolate(&mut self, index: usize) -> Result<()> {
        self.cut(index)?;
        self.network.cut(host(index)?, TEST)
    }

    /// Undoes every cut. Connections that were not given up meanwhile go on where they stalled: those of the servers
    /// within a second (from Linux 6.15 on), those of clients when they next try, which they do ever more rarely.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn heal(&mut self) -> Result<()> {
        self.network.heal()
    }
}

impl Deref for NamespacedEnsemble {
    type Target = ZooKeeperEnsemble;

    fn deref(&self) -> &ZooKeeperEnsemble {
        &self.ensemble
    }
}

impl DerefMut for NamespacedEnsemble {
    fn deref_mut(&mut self) -> &mut ZooKeeperEnsemble {
        &mut self.ensemble
    }
}

fn host(index: usize) -> Result<u8> {
    Ok(u8::try_from(index)? + 1)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ensemble::poll, test_client::create},
        *,
    };
    use crate::network::possible;

    #[test]
    fn a_cut_leader_is_replaced_while_clients_reach_it_and_it_follows_once_healed() {
        if !possible() {
            return;
        }
        let mut ensemble = NamespacedEnsemble::start(3, ZooKeeperOptions::default()).unwrap();
        let leader = ensemble.leader().unwrap();
        ensemble.cut(leader).unwrap();
        let next = ensemble.leader_other_than(leader).unwrap();
        create(ensemble.node(next).addr(), "/by-the-next-leader");
        poll(|| ensemble.node(leader).mode().unwrap().is_none().then_some(()))
            .expect("a leader without its quorum answers, and serves nobody");
        ensemble.heal().unwrap();
        ensemble.wait_until_whole().unwrap();
        assert_eq!(ensemble.leader().unwrap(), next);
    }

    #[test]
    fn an_isolated_follower_is_out_of_reach_and_the_others_go_on() {
        if !possible() {
            return;
        }
        let mut ensemble = NamespacedEnsemble::start(3, ZooKeeperOptions::default()).unwrap();
        let (leader, followers) = (ensemble.leader().unwrap(), ensemble.followers());
        ensemble.isolate(followers[0]).unwrap();
        assert!(ensemble.node(followers[0]).probe_mode().is_err(), "an isolated server answers");
        create(ensemble.node(followers[1]).addr(), "/by-the-other-follower");
        assert_eq!(ensemble.leader().unwrap(), leader);
        ensemble.heal().unwrap();
        ensemble.wait_until_whole().unwrap();
    }
}
