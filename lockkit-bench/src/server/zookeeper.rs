//! ZooKeeper: the servers of the URL, by their four-letter words, and the ensemble, by what it says of itself.

use std::{
    sync::atomic::{AtomicU64, Ordering},
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
    /// How many servers have a vote; `None` for a single one without an ensemble.
    voters: Option<usize>,
    /// What a server has been asked so far: it counts each word as a packet.
    asked: Vec<AtomicU64>,
}

impl ZooKeeperServers {
    pub(crate) async fn open(url: StoreUrl) -> Result<Self> {
        let config = Config::from_url(url).map_err(opening)?;
        // A session is a transaction, by which a server shows whether it waits for its disk.
        let client = config.open_bare().await.map_err(opening)?;
        let voters = match client.get_config().await {
            Ok((members, _)) => voters(&String::from_utf8_lossy(&members)),
            // Not readable for everybody: then what the user says.
            Err(_) => Some(config.addresses().len()).filter(|servers| *servers > 1),
        };
        end(client).await;
        let addresses = config.addresses();
        let asked = addresses.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { addresses, voters, asked })
    }

    /// What each server answers.
    async fn ask(&self, word: &str) -> Vec<Option<String>> {
        let answers = self.addresses.iter().zip(&self.asked).map(async |(address, asked)| {
            asked.fetch_add(1, Ordering::Relaxed);
            four_letter::ask(address, word).await
        });
        join_all(answers).await
    }
}

/// Waits until the session has ended, as far as that does not take long: its end is a packet, too.
async fn end(client: Client) {
    let mut states = client.state_watcher();
    drop(client);
    let ended = async { while !states.changed().await.is_terminated() {} };
    // Only the count of packets can be off by one.
    let _ = timeout(PARTING, ended).await;
}

fn opening(error: lockkit::Error) -> Error {
    Error::of("connecting to ZooKeeper", error)
}

#[async_trait]
impl Server for ZooKeeperServers {
    async fn facts(&self) -> Result<Facts> {
        let (states, metrics) = (self.ask("srvr").await, self.ask("mntr").await);
        let of_any = |name| states.iter().flatten().find_map(|state| line(state, name));
        let version = of_any("Zookeeper version: ").map_or("unknown", short);
        let modes: Option<Vec<_>> = states.iter().map(|state| line(state.as_deref()?, "Mode: ")).collect();
        let syncs = metrics.iter().filter(|metrics| metrics.as_deref().is_some_and(waits_for_disk)).count();
        let told = metrics.iter().flatten().count();
        let forced = (told == metrics.len()).then(|| format!("seen on {syncs} of {told}"));
        let voters = self.voters.map_or("1, no ensemble".to_owned(), |voters| voters.to_string());
        Ok(Facts {
            product: "ZooKeeper".to_owned(),
            version: version.to_owned(),
            settings: vec![
                setting("voters", Some(&voters), "a majority of them agrees on each grant"),
                setting("mode", modes.map(|modes| modes.join(", ")).as_deref(), "of the servers of the URL"),
                setting(
                    "forceSync",
                    forced.as_deref(),
                    "whether a server waits for its disk before it confirms, as its count of syncs shows",
                ),
            ],
            guarantee: judge(self.voters, syncs, self.addresses.len()),
        })
    }

    async fn requests(&self) -> Result<Option<u64>> {
        let answers = self.ask("mntr").await;
        let counts = answers.iter().zip(&self.asked).map(|(metrics, asked)| {
            let packets = metric(metrics.as_deref()?, "zk_packets_received")?;
            Some(packets.saturating_sub(asked.load(Ordering::Relaxed)))
        });
        Ok(counts.sum())
    }
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// `3.8.0-5a02a05…, built on …`, or with more between the hyphens.
fn short(version: &str) -> &str {
    version.split(['-', ',']).next().unwrap_or(version)
}

fn metric(metrics: &str, name: &str) -> Option<u64> {
    let mut words =
        metrics.lines().map(str::split_whitespace).find(|words| words.clone().next() == Some(name))?;
    words.nth(1)?.split('.').next()?.parse().ok()
}

/// A server that does not wait for its disk measures no syncs.
fn waits_for_disk(metrics: &str) -> bool {
    metric(metrics, "zk_cnt_fsynctime").is_some_and(|syncs| syncs > 0)
}

/// Of lines such as `server.1=host:2888:3888:participant;0.0.0.0:2181`.
fn voters(config: &str) -> Option<usize> {
    let members = config.lines().filter(|line| line.starts_with("server."));
    let voters = members.filter(|line| !line.contains(":observer")).count();
    (voters > 0).then_some(voters)
}

/// `syncs` of the `asked` servers are known to wait for their disks.
fn judge(voters: Option<usize>, syncs: usize, asked: usize) -> Guarantee {
    use GuaranteeClass as Class;
    let all_sync = syncs == asked;
    match voters {
        Some(voters @ 3..) if all_sync && syncs * 2 > voters => guarantee(
            Class::Consensus,
            format!(
                "A majority of {voters} servers agrees on each grant, on disk; the loss of a minority is survived."
            ),
        ),
        Some(voters @ 3..) => guarantee(
            Class::AsynchronousFailover,
            format!(
                "A majority of {voters} servers agrees on each grant, but it is not known of enough of them that they \
                 wait for their disks (name all in the URL, and allow the four-letter word mntr): if they don't, those \
                 that crash forget the last grants, and may be the next majority."
            ),
        ),
        _ if all_sync => guarantee(
            Class::OneDurableServer,
            "Each grant is on disk before it is answered; with one server down, nobody gets a lock.",
        ),
        _ => guarantee(
            Class::Volatile,
            "It is not known that the server waits for its disk (allow the four-letter word mntr): if it doesn't, a \
             crash of the machine forgets the last grants.",
        ),
    }
}
