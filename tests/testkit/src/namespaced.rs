//! Servers that work together, on a network that a test can cut.

use std::{
    ops::{Deref, DerefMut},
    result,
};

use anyhow::{Context as _, Result};

use crate::network::{Network, TEST};

/// Servers on separate hosts: each host is a network namespace, which needs Linux and root. Where
/// that is impossible, the servers are on the loopback, which can't be cut.
///
/// Dropping this value removes the namespaces and the links between them. The next process that
/// makes namespaces removes what a killed process left behind.
#[derive(Debug)]
pub struct Namespaced<S> {
    // Dropped first, because a namespace lives on while a process is in it.
    servers: S,
    network: Option<Network>,
}

impl<S> Namespaced<S> {
    /// Checks whether network namespaces can be made and joined here.
    ///
    /// # Errors
    /// The reason why not.
    pub fn is_possible() -> result::Result<(), String> {
        Network::is_possible()
    }

    /// Servers that are all on 127.0.0.1.
    pub fn on_loopback(servers: S) -> Self {
        Self { servers, network: None }
    }

    pub(crate) fn of(servers: S, network: Network) -> Self {
        Self { servers, network: Some(network) }
    }

    /// Whether the network can be cut.
    pub fn is_cuttable(&self) -> bool {
        self.network.is_some()
    }

    /// Cuts the host `index`, from 0, off from the other hosts. Clients still reach it. Packets
    /// vanish both ways, and open connections stall. A Unix socket works as before.
    ///
    /// # Errors
    /// When the servers are on the loopback, or `ip` fails.
    pub fn cut(&mut self, index: usize) -> Result<()> {
        self.network()?.cut_off(host(index)?)
    }

    /// Cuts the host `index` off from all other hosts and from the clients.
    ///
    /// # Errors
    /// As for [`cut`](Self::cut).
    pub fn isolate(&mut self, index: usize) -> Result<()> {
        self.cut(index)?;
        self.network()?.cut(host(index)?, TEST)
    }

    /// Undoes every cut. Connections that were not given up meanwhile continue where they stalled.
    /// Those of the hosts do so within a second (from Linux 6.15 on). Those of clients do so at
    /// their next retry, and retries become ever rarer.
    ///
    /// # Errors
    /// As for [`cut`](Self::cut).
    pub fn heal(&mut self) -> Result<()> {
        self.network()?.heal()
    }

    fn network(&mut self) -> Result<&mut Network> {
        self.network.as_mut().context("the servers are all on one network, which can't be cut")
    }
}

fn host(index: usize) -> Result<u8> {
    Ok(u8::try_from(index)? + 1)
}

impl<S> Deref for Namespaced<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.servers
    }
}

impl<S> DerefMut for Namespaced<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.servers
    }
}
