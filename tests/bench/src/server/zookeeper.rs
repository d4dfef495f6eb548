//! Describes ZooKeeper: the servers of the URL, by their four-letter words, and the ensemble, by
//! its own configuration.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use lockkit::{
    url::StoreUrl,
    zk::{Config, zookeeper_client::Client},
};
use tokio::time::timeout;

use super::{Facts, Server, four_letter, guarantee, setting};
use crate::{
    Error, Result,
    report::{Guarantee, GuaranteeClass},
};

const PARTING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct ZooKeeperServers {
    addresses: Vec<String>,
    /// The ensemble as its configuration describes it; `None` if this user may not read that.
    ensemble: Option<Ensemble>,
    /// The number of words that each server was asked: the server counts each word as a packet.
    asked: Vec<AtomicU64>,
    /// Whether the four-letter words work: they are for ports without TLS.
    has_words: bool,
    /// Whether a server did not report its counts. It will not report them later either, and a
    /// refusal may take seconds.
    is_mute: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ensemble {
    /// A single server.
    Standalone,
    /// This many servers have a vote.
    Voters(usize),
}

impl ZooKeeperServers {
    pub(crate) async fn open(url: StoreUrl) -> Result<Self> {
        let has_words = url.scheme() != "zks";
        let config = Config::from_url(url).map_err(opening)?;
        // A session is a transaction; a server's sync of it shows whether the server waits for its
        // disk.
        let client = config.open_bare().await.map_err(opening)?;
        let ensemble = match client.get_config().await {
            Ok((members, _)) => Some(ensemble(&String::from_utf8_lossy(&members))),
            // Not all users may read the configuration.
            Err(_) => None,
        };
        end(client).await;
        let addresses = config.addresses();
        let asked = addresses.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { addresses, ensemble, asked, has_words, is_mute: AtomicBool::new(!has_words) })
    }

    /// The answer of each server.
    async fn ask(&self, word: &str) -> Vec<Option<String>> {
        if !self.has_words {
            return vec![None; self.addresses.len()];
        }
        let answers = self.addresses.iter().zip(&self.asked).map(async |(address, asked)| {
            asked.fetch_add(1, Ordering::Relaxed);
            four_letter::ask(address, word).await
        });
        join_all(answers).await
    }
}

/// Waits a short time until the session has ended, because its end is a packet, too.
async fn end(client: Client) {
    let mut states = client.state_watcher();
    drop(client);
    let ended = async { while !states.changed().await.is_terminated() {} };
    // After a timeout, the count of packets can be off by one, and nothing else is wrong.
    let _ = timeout(PARTING, ended).await;
}

fn opening(error: lockkit::Error) -> Error {
    Error::of("could not connect to ZooKeeper", error)
}

#[async_trait]
impl Server for ZooKeeperServers {
    async fn facts(&self) -> Result<Facts> {
        let states = self.ask("srvr").await;
        let metrics = self.ask("mntr").await;
        let of_any = |name| states.iter().flatten().find_map(|state| line(state, name));
        let version = of_any("Zookeeper version: ").map_or("unknown", short);
        let modes: Option<Vec<_>> =
            states.iter().map(|state| line(state.as_deref()?, "Mode: ")).collect();
        let syncs =
            metrics.iter().filter(|metrics| metrics.as_deref().is_some_and(waits_for_disk)).count();
        let told = metrics.iter().flatten().count();
        self.is_mute.fetch_or(told < metrics.len(), Ordering::Relaxed);
        let ensemble = self.ensemble.or_else(|| seen(modes.as_deref()?));
        let forced = (told == metrics.len()).then(|| format!("seen on {syncs} of {told}"));
        let voters = ensemble.map(|ensemble| match ensemble {
            Ensemble::Standalone => "1, no ensemble".to_owned(),
            Ensemble::Voters(voters) => voters.to_string(),
        });
        Ok(Facts {
            product: "ZooKeeper".to_owned(),
            version: version.to_owned(),
            settings: vec![
                setting("voters", voters.as_deref(), "a majority of them agrees on each grant"),
                setting(
                    "mode",
                    modes.map(|modes| modes.join(", ")).as_deref(),
                    "the roles of the servers in the URL",
                ),
                setting(
                    "forceSync",
                    forced.as_deref(),
                    "whether a server syncs its disk before it confirms; its count of syncs shows \
                     this",
                ),
            ],
            guarantee: judge(ensemble, syncs, self.addresses.len()),
        })
    }

    async fn requests(&self) -> Result<Option<u64>> {
        if self.is_mute.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let answers = self.ask("mntr").await;
        let counts = answers.iter().zip(&self.asked).map(|(metrics, asked)| {
            let packets = metric(metrics.as_deref()?, "zk_packets_received")?;
            Some(packets.saturating_sub(asked.load(Ordering::Relaxed)))
        });
        let sum = counts.sum::<Option<u64>>();
        self.is_mute.fetch_or(sum.is_none(), Ordering::Relaxed);
        Ok(sum)
    }
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// The version from `3.8.0-5a02a05…, built on …`, also with more between the hyphens.
fn short(version: &str) -> &str {
    version.split(['-', ',']).next().unwrap_or(version)
}

fn metric(metrics: &str, name: &str) -> Option<u64> {
    let mut words = metrics
        .lines()
        .map(str::split_whitespace)
        .find(|words| words.clone().next() == Some(name))?;
    words.nth(1)?.split('.').next()?.parse().ok()
}

/// Whether a server waits for its disk: a server that does not measures no syncs.
fn waits_for_disk(metrics: &str) -> bool {
    metric(metrics, "zk_cnt_fsynctime").is_some_and(|syncs| syncs > 0)
}

/// Reads lines such as `server.1=host:2888:3888:participant;0.0.0.0:2181`.
fn ensemble(config: &str) -> Ensemble {
    let members = config.lines().filter(|line| line.starts_with("server."));
    match members.filter(|line| !line.contains(":observer")).count() {
        0 => Ensemble::Standalone,
        voters => Ensemble::Voters(voters),
    }
}

/// The ensemble according to the modes of the URL's servers. Addresses alone do not prove voters:
/// they may be observers, or two names of one server.
fn seen(modes: &[&str]) -> Option<Ensemble> {
    let count = |mode: &str| modes.iter().filter(|other| **other == mode).count();
    match (count("leader"), count("follower"), count("standalone")) {
        (1, followers @ 1.., 0) => Some(Ensemble::Voters(1 + followers)),
        (0, 0, 1) if modes.len() == 1 => Some(Ensemble::Standalone),
        _ => None,
    }
}

/// The guarantee of an ensemble, where `syncs` of the `asked` servers wait for their disks.
fn judge(ensemble: Option<Ensemble>, syncs: usize, asked: usize) -> Guarantee {
    use GuaranteeClass as Class;
    let all_sync = syncs == asked;
    let Some(ensemble) = ensemble else {
        let class = if all_sync { Class::AsynchronousFailover } else { Class::Volatile };
        return guarantee(
            class,
            "The number of servers that agree on each grant is unknown. A server that takes over \
             may lack the last grants. To prove more, name all servers in the URL, and allow the \
             four-letter words srvr and mntr, or let this user read /zookeeper/config.",
        );
    };
    let voters = match ensemble {
        Ensemble::Standalone => None,
        Ensemble::Voters(voters) => Some(voters),
    };
    match voters {
        Some(voters @ 3..) if all_sync && syncs * 2 > voters => guarantee(
            Class::Consensus,
            format!(
                "A majority of {voters} servers writes each grant to disk. The locks survive the \
                 loss of a minority."
            ),
        ),
        Some(voters @ 3..) => guarantee(
            Class::AsynchronousFailover,
            format!(
                "A majority of {voters} servers agrees on each grant, but too few are known to \
                 sync their disks. Servers that do not sync lose the last grants in a crash, and \
                 may form the next majority. To prove more, name all servers in the URL, and allow \
                 the four-letter word mntr."
            ),
        ),
        _ if all_sync => guarantee(
            Class::OneDurableServer,
            "The server writes each grant to disk before it answers. With one server down, no \
             client gets a lock.",
        ),
        _ => guarantee(
            Class::Volatile,
            "The server does not prove that it syncs its disk. Without syncs, a crash of the \
             machine loses the last grants. To prove more, allow the four-letter word mntr.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of addresses in a URL proves no majority.
    #[test]
    fn only_a_leader_with_followers_is_an_ensemble() {
        for (modes, expected) in [
            (&["follower", "leader", "follower"][..], Some(Ensemble::Voters(3))),
            (&["follower", "leader", "observer"], Some(Ensemble::Voters(2))),
            (&["standalone"], Some(Ensemble::Standalone)),
            (&["standalone", "standalone", "standalone"], None),
            (&["follower", "follower", "follower"], None),
            (&["leader"], None),
        ] {
            assert_eq!(seen(modes), expected, "{modes:?}");
        }
        assert_eq!(judge(None, 3, 3).class, GuaranteeClass::AsynchronousFailover);
        assert_eq!(judge(None, 2, 3).class, GuaranteeClass::Volatile);
        assert_eq!(judge(Some(Ensemble::Voters(3)), 3, 3).class, GuaranteeClass::Consensus);
    }
}
