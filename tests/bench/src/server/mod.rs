//! What a server is, how it is set up, and what it counts.

mod file;
mod four_letter;
mod memory;
mod mysql;
mod redis;
#[cfg(test)]
mod tests;
mod zookeeper;

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use lockkit::Locker;

use crate::{
    Result,
    family::Family,
    report::{Guarantee, GuaranteeClass, ROUND_TRIP, Setting},
};

/// What there is to say about a server in the report.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Such as `Redis`.
    pub(crate) product: String,
    /// Such as `7.0.15`.
    pub(crate) version: String,
    /// What was asked about durability and the like.
    pub(crate) settings: Vec<Setting>,
    /// What a lock is worth on it, never better than what was read.
    pub(crate) guarantee: Guarantee,
}

impl Facts {
    /// With what a locker adds: what may break its promises on the best server, and how far away
    /// the store is.
    pub(crate) async fn of(mut self, locker: &Locker) -> Self {
        let exceptions = locker.descriptor().exceptions;
        for (applies, text) in [
            (
                exceptions.connection_bound,
                "A connection that dies may free its locks before their leases end.",
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
        // The first one opens what is needed.
        let _ = locker.health().await;
        let trip = locker
            .health()
            .await
            .ok()
            .map(|health| format!("{} µs", health.round_trip.as_micros()));
        let meaning =
            "from here to the server and back, one sign of life: no grant can come sooner";
        self.settings.push(setting(ROUND_TRIP, trip.as_deref(), meaning));
        self
    }
}

/// A server, or the servers behind one URL.
#[async_trait]
pub(crate) trait Server: Send + Sync + Debug {
    /// The facts for the report.
    async fn facts(&self) -> Result<Facts>;

    /// Requests of clients that the server has had so far, as it counts them, without those by
    /// which it was asked. `None`: it does not tell.
    async fn requests(&self) -> Result<Option<u64>>;
}

/// A server by its URL.
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

/// What servers say that don't want to tell.
const NOT_TOLD: &str = "not told";

/// A setting and what it means for locks; one that the server does not tell is there as well.
fn setting(name: &str, value: Option<&str>, meaning: &str) -> Setting {
    Setting {
        name: name.to_owned(),
        value: value.unwrap_or(NOT_TOLD).to_owned(),
        meaning: meaning.to_owned(),
    }
}

fn guarantee(class: GuaranteeClass, text: impl Into<String>) -> Guarantee {
    Guarantee { class, text: text.into() }
}
