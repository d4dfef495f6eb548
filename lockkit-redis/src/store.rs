//! Sends requests to the servers that have a name's keys.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use lockkit_core::{Clock, Result};
use redis::Value;
use tokio::time;

use crate::{
    config::{Config, Site},
    error::{self, OpenError, Phase},
    keys::Keys,
    script::{Arg, Call},
    servers::{Cluster, Destination, Endpoint, Link, Node, Route, Sentinels, Topology},
    shared::Shared,
    waiting::{RefreshBatch, Registration, WaiterRegistry},
};

/// After this time, the next request sees that a connection has been silent for too long, and takes
/// another.
const MISTRUST: Duration = Duration::from_millis(10);

/// A store of locks: one server at a time, or a cluster.
pub(crate) struct Store {
    shared: Arc<Shared>,
    topology: Topology,
    /// The start of all clients' channels, where there are no slots.
    channels: String,
}

impl Store {
    pub(crate) fn new(config: Config) -> Self {
        let channels = config.channels();
        let shared = Arc::new(Shared::new(config));
        let config = &shared.config;
        let one = |endpoint| Topology::One(Arc::new(Node::new(Arc::clone(&shared), endpoint)));
        let topology = match config.site() {
            Site::Tcp((host, port)) => one(Endpoint::At(config.address_of(host, *port))),
            Site::Unix(path) => one(Endpoint::At(redis::ConnectionAddr::Unix(path.clone()))),
            Site::Client(address) => one(Endpoint::At(address.clone())),
            Site::Sentinel { sentinels, service } => {
                let login = config.sentinel_login().clone();
                one(Endpoint::Primary(Arc::new(Sentinels::new(
                    config.clone(),
                    sentinels.clone(),
                    service.clone(),
                    login,
                ))))
            }
            Site::Cluster(seeds) => {
                Topology::Cluster(Cluster::new(Arc::clone(&shared), seeds.clone()))
            }
        };
        Self { topology, channels, shared }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    pub(crate) fn waiters(&self) -> &Arc<WaiterRegistry> {
        &self.shared.waiters
    }

    /// Marks the server of this slot as suspect: another one may be the primary now. If too few
    /// replicas have confirmed a write, they may follow that one.
    pub(crate) fn mark_suspect(&self, slot: u16) {
        self.topology.mark_suspect(slot);
    }

    /// The way to the node that has this slot.
    pub(crate) fn route(&self, slot: u16) -> Route<'_> {
        Route::new(&self.shared, &self.topology, slot)
    }

    /// One slot of each server that keeps locks.
    pub(crate) async fn slots(&self) -> Result<Vec<u16>> {
        let slots = self.topology.slots().await;
        slots.map_err(|error| error::opening(&error, self.config()))
    }

    /// How scripts publish to the waiters of a name: a command, and the start of the channels.
    pub(crate) fn channels(&self, link: &Link, keys: &Keys) -> (&'static str, String) {
        let channels = if link.is_sharded() { keys.slot_channels() } else { self.channels.clone() };
        (link.publish(), channels)
    }

    /// Runs a script on the server that has the slot.
    pub(crate) async fn run(&self, slot: u16, phase: Phase, call: &Call<'_>) -> Result<Value> {
        self.route(slot)
            .lead(phase, |destination: Arc<Destination>| async move { destination.run(call).await })
            .await
    }

    /// Bounds a request that has no other bound, by the time for which a silent connection is
    /// trusted.
    pub(crate) async fn patiently<T>(&self, request: impl Future<Output = T>) -> Result<T> {
        let answer = time::timeout(self.config().connect_timeout, request).await;
        answer.map_err(|_| error::opening(&OpenError::Silent, self.config()))
    }

    /// Keeps the waiters of a group alive, and learns their state, unless another waiter has done
    /// that meanwhile. On one server, the requests cover all waiters of this process that are due.
    /// On a cluster, each group has its own request, so that another group's node does not delay
    /// it.
    pub(crate) async fn refresh_for(&self, registration: &Registration) -> Result<()> {
        let waiters = self.waiters();
        let base = registration.group();
        let only = self.shared.config.is_cluster().then_some(base);
        let _turn = match only {
            Some(base) => waiters.turn_in(base).lock_owned().await,
            None => waiters.turn().lock_owned().await,
        };
        if !registration.is_due() {
            return Ok(());
        }
        for batch in waiters.due(only) {
            match self.refresh_batch(&batch).await {
                // One group's broken key must not harm the others.
                Err(error) if !error.is_temporary() => self.refresh_apart(batch, base).await?,
                answer => answer?,
            }
        }
        Ok(())
    }

    /// Asks about each group by itself. All requests run at once: one after the other, they would
    /// take longer than a waiter has.
    async fn refresh_apart(&self, batch: RefreshBatch, base: &str) -> Result<()> {
        let answers = batch.apart().map(async |batch| (self.refresh_batch(&batch).await, batch));
        let mut own = Ok(());
        for (answer, batch) in join_all(answers).await {
            match answer {
                Err(error) if batch.base() == base => own = Err(error),
                Err(error) => {
                    tracing::debug!(target: "lockkit", %error, "waiters can't be kept alive");
                    self.waiters().put_off(&batch);
                }
                Ok(()) => {}
            }
        }
        own
    }

    /// Asks about a batch. Other waiters wait for the answer, and the caller may be very patient.
    /// So the call ends when the connection is no longer trusted.
    async fn refresh_batch(&self, batch: &RefreshBatch) -> Result<()> {
        let patience = self.config().connect_timeout.saturating_add(MISTRUST);
        let answer = time::timeout(patience, self.ask_about(batch)).await;
        answer.unwrap_or_else(|_| Err(error::opening(&OpenError::Silent, self.config())))
    }

    async fn ask_about(&self, batch: &RefreshBatch) -> Result<()> {
        let Some(keys) = batch.first_keys() else { return Ok(()) };
        let script = &batch.family.scripts().refresh;
        let names = &batch.keys();
        let refresh = |destination: Arc<Destination>| async move {
            let (publish, channels) = self.channels(&destination.link, keys);
            let args: Vec<_> = [Arg::Text(publish), Arg::Text(&channels)]
                .into_iter()
                .chain(batch.args())
                .collect();
            let call = Call { script, keys: names, args: &args };
            let sent = Clock::Boot.now();
            destination.enter(self.waiters(), batch.base()).await?;
            let reply = destination.run(&call).await?;
            let now = self.waiters().refreshed(batch, &destination.link, sent, &reply)?;
            destination.link.clock().observe(sent, now, Clock::Boot.now());
            Ok(())
        };
        self.route(batch.slot()).lead(Phase::Read, refresh).await
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        match &self.topology {
            Topology::One(node) => node.close(),
            Topology::Cluster(cluster) => cluster.close(),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("config", self.config()).finish_non_exhaustive()
    }
}
