//! Describes servers: their product, their settings, and their counts of requests.

mod file;
mod four_letter;
mod memory;
mod mysql;
mod redis;
#[cfg(test)]
mod tests;
mod zookeeper;

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit::Locker;

use crate::{
    Result,
    family::Family,
    report::{Guarantee, GuaranteeClass, ROUND_TRIP, Setting},
};

/// The facts about a server for the report.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Such as `Redis`.
    pub(crate) product: String,
    /// Such as `7.0.15`.
    pub(crate) version: String,
    /// The settings for durability and similar matters.
    pub(crate) settings: Vec<Setting>,
    /// The guarantee of a lock on the server. It is never better than the known settings prove.
    pub(crate) guarantee: Guarantee,
}

impl Facts {
    /// Adds the facts that a locker knows: faults that break its guarantees even on the best
    /// server, and the time to the store and back.
    pub(crate) async fn of(mut self, locker: &Locker) -> Self {
        let exceptions = locker.descriptor().exceptions;
        for (applies, text) in [
            (
                exceptions.connection_bound,
                "If a connection breaks, the server may free its locks before their leases end.",
            ),
            (
                exceptions.no_lease,
                "There is no lease: only the end of the process frees its locks.",
            ),
            (
                exceptions.server_clock_step,
                "A step of the server's clock ends leases early or late.",
            ),
        ] {
            if applies {
                self.guarantee.text.push(' ');
                self.guarantee.text.push_str(text);
            }
        }
        // The first call opens the connection that it needs.
        let _ = locker.health().await;
        let trip = locker
            .health()
            .await
            .ok()
            .map(|health| format!("{} µs", health.round_trip.as_micros()));
        let meaning = "the time of one ping to the server and back; no grant is faster";
        self.settings.push(setting(ROUND_TRIP, trip.as_deref(), meaning));
        self
    }
}

/// A server, or the servers behind one URL.
#[async_trait]
pub(crate) trait Server: Send + Sync + Debug {
    /// The facts for the report.
    async fn facts(&self) -> Result<Facts>;

    /// The clients' requests so far, as the server counts them, without the requests for the count
    /// itself. `None` if the server does not report it.
    async fn requests(&self) -> Result<Option<u64>>;

    /// The server's processor time so far. `None` if the server does not report it.
    async fn cpu_time(&self) -> Result<Option<Duration>> {
        Ok(None)
    }
}

/// The server of a URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Server>> {
    let (family, url) = Family::of(url)?;
    Ok(match family {
        Family::File => Arc::new(file::FileServer::of(&url)),
        Family::Memory => Arc::new(memory::MemoryServer),
        Family::MySql => Arc::new(mysql::MySqlServer::open(url).await?),
        Family::Redis => Arc::new(redis::RedisServers::open(url).await?),
        Family::ZooKeeper => Arc::new(zookeeper::ZooKeeperServers::open(url).await?),
    })
}

/// The value of a setting that the server does not report.
const NOT_REPORTED: &str = "not reported";

/// A setting and its meaning for locks. A setting that the server does not report is included too.
fn setting(name: &str, value: Option<&str>, meaning: &str) -> Setting {
    Setting {
        name: name.to_owned(),
        value: value.unwrap_or(NOT_REPORTED).to_owned(),
        meaning: meaning.to_owned(),
    }
}

fn guarantee(class: GuaranteeClass, text: impl Into<String>) -> Guarantee {
    Guarantee { class, text: text.into() }
}
