//! An ensemble on a network that a test can cut.

use anyhow::{Context as _, Result};

use super::{
    ensemble::{Place, ZooKeeperEnsemble},
    options::ZooKeeperOptions,
};
use crate::{
    namespaced::Namespaced,
    network::{Network, TEST},
};

const CLIENT_PORT: u16 = 2181;
const QUORUM_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;

/// A [`ZooKeeperEnsemble`] with each server on its own host.
pub type NamespacedEnsemble = Namespaced<ZooKeeperEnsemble>;

impl NamespacedEnsemble {
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
        let ensemble =
            ensemble.context("a port is taken in a namespace that has just been made")?;
        Ok(Self::of(ensemble, network))
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{ensemble::poll, test_client::create},
        *,
    };
    use crate::network::possible;

    /// A server may stall for seconds, so the others must miss it only after four ticks.
    fn start() -> NamespacedEnsemble {
        let options = ZooKeeperOptions::default().with_tick(std::time::Duration::from_secs(2));
        NamespacedEnsemble::start(3, options).unwrap()
    }

    #[test]
    fn a_cut_leader_is_replaced_and_follows_after_the_heal() {
        if !possible() {
            return;
        }
        let mut ensemble = start();
        let leader = ensemble.leader().unwrap();
        ensemble.cut(leader).unwrap();
        let next = ensemble.leader_other_than(leader).unwrap();
        create(ensemble.node(next).addr(), "/by-the-next-leader");
        poll(|| ensemble.node(leader).mode().unwrap().is_none().then_some(()))
            .expect("a leader without its quorum answers, but serves no client");
        ensemble.heal().unwrap();
        ensemble.wait_until_whole().unwrap();
        assert_eq!(ensemble.leader().unwrap(), next);
    }

    #[test]
    fn an_isolated_follower_is_unreachable_and_the_others_continue() {
        if !possible() {
            return;
        }
        let mut ensemble = start();
        let leader = ensemble.leader().unwrap();
        let followers = ensemble.followers();
        ensemble.isolate(followers[0]).unwrap();
        assert!(ensemble.node(followers[0]).probe_mode().is_err(), "an isolated server answers");
        create(ensemble.node(followers[1]).addr(), "/by-the-other-follower");
        assert_eq!(ensemble.leader().unwrap(), leader);
        ensemble.heal().unwrap();
        ensemble.wait_until_whole().unwrap();
    }
}
