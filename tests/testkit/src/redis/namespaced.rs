//! Sentinels and servers on a network that a test can cut.

use anyhow::Result;

use super::{
    options::Place,
    sentinel::{SentinelGroup, SentinelOptions},
};
use crate::{
    namespaced::Namespaced,
    network::{Network, TEST},
};

const HOSTS: u8 = 3;

/// A [`SentinelGroup`] on three hosts with a server and a sentinel each.
pub type NamespacedSentinels = Namespaced<SentinelGroup>;

impl NamespacedSentinels {
    /// Starts all of them, and waits until the replicas are in sync and the sentinels know all
    /// servers and each other.
    ///
    /// # Errors
    /// As for [`SentinelGroup::start`], or it [is not possible](Self::is_possible) here.
    pub fn start(options: &SentinelOptions) -> Result<Self> {
        let network = Network::new(HOSTS)?;
        let places = network.ends().filter(|&end| end != TEST);
        let places =
            places.map(|host| Place { ip: network.addr(host), wrapper: network.wrapper(host) });
        let group = SentinelGroup::start_at(&places.collect::<Vec<_>>(), options)?;
        Ok(Self::of(group, network))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::wait::wait_for, *};
    use crate::network::possible;

    const TIMEOUT: Duration = Duration::from_secs(120);

    #[test]
    fn a_cut_primary_is_replaced_and_becomes_a_replica_after_the_heal() {
        if !possible() {
            return;
        }
        // A server may stall for seconds, and the sentinels must not consider it down.
        let options = SentinelOptions::default().with_down_after(Duration::from_secs(5));
        let mut group = NamespacedSentinels::start(&options).unwrap();
        assert!(group.all_trust(0).unwrap());
        group.cut(0).unwrap();
        // The sentinel on the cut host does not know the next primary.
        let next = wait_for("the next primary", TIMEOUT, || {
            Ok((1..3).find(|&index| group.servers()[index].is_primary().unwrap_or(false)))
        });
        let next = next.unwrap();
        group.servers()[0].ask(["SET", "a", "b"]).unwrap();
        assert!(!group.all_trust(next).unwrap());
        group.heal().unwrap();
        // If the machine stalls for long, the sentinels may choose again.
        let primaries = || {
            let all = group.servers().iter().enumerate();
            all.filter_map(|(index, server)| server.is_primary().ok()?.then_some(index))
                .collect::<Vec<_>>()
        };
        let agreement = || match *primaries() {
            [only] => Ok(group.all_trust(only)?.then_some(())),
            _ => Ok(None),
        };
        wait_for("one primary that all trust", TIMEOUT, agreement).unwrap();
    }
}
