//! Leads one request to the node that can answer it.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Error, Result};
use redis::{ConnectionAddr, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time;

use super::{cluster::Cluster, collected::UnderWay, link::Link, node::Node, pool::CheckedOutLink};
use crate::{
    config::Address,
    error::{self, OpenError, Phase},
    script::Call,
    shared::Shared,
    waiting::WaiterRegistry,
};

/// Which servers there are.
#[derive(Debug)]
pub(crate) enum Topology {
    /// One server at a time.
    One(Arc<Node>),
    Cluster(Cluster),
}

impl Topology {
    /// Marks the server of this slot as suspect: another one may have the slot by now. lockkit
    /// checks that before the next request for it.
    pub(crate) fn mark_suspect(&self, slot: u16) {
        match self {
            Self::One(node) => node.mark_suspect(),
            Self::Cluster(cluster) => cluster.mark_suspect(slot),
        }
    }

    /// One slot of each server that keeps locks.
    pub(crate) async fn slots(&self) -> Result<Vec<u16>, OpenError> {
        match self {
            Self::One(_) => Ok(vec![0]),
            Self::Cluster(cluster) => cluster.slot_of_each().await,
        }
    }
}

/// How often a request may be redirected. Each time it did nothing, so it is sent again unchanged.
const MOST_TURNS: u32 = 24;
/// How often a request is redirected without a pause. After that, the nodes don't agree yet.
const QUICK_TURNS: u32 = 4;
/// While the keys of a slot move to another node, neither node can answer.
const MOVING_PAUSE: Duration = Duration::from_millis(10);

/// The way of one request.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    shared: &'a Shared,
    topology: &'a Topology,
    slot: u16,
    /// The request has a connection for itself if it waits for replicas.
    alone: bool,
    /// The node to ask next, only once.
    ask: Option<Address>,
    turns: u32,
}

/// Where a request is sent now.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) link: Arc<Link>,
    alone: Option<CheckedOutLink>,
    /// The slot is moving to this node.
    asking: bool,
}

impl Destination {
    /// The connection on which the request is sent.
    pub(crate) fn sender(&self) -> &Arc<Link> {
        self.alone.as_deref().unwrap_or(&self.link)
    }

    /// Like [`run`](Self::run). With `replicas`, waits until this many have confirmed what the
    /// script wrote, or until that time has passed. The second answer says how many have confirmed.
    pub(crate) async fn run_confirmed(
        &self,
        call: &Call<'_>,
        replicas: Option<(u32, Duration)>,
    ) -> RedisResult<(Value, Option<RedisResult<Value>>)> {
        let (Some(link), Some((replicas, timeout))) = (&self.alone, replicas) else {
            return Ok((self.run(call).await?, None));
        };
        let (reply, waited) =
            Box::pin(link.run_and_wait(self.asking, call, replicas, timeout)).await?;
        Ok((reply, Some(waited)))
    }

    /// True if a request should go with others in a batch.
    pub(crate) fn is_busy(&self) -> bool {
        !self.asking && self.alone.is_none() && self.link.batches.are_due()
    }

    pub(crate) async fn run(&self, call: &Call<'_>) -> RedisResult<Value> {
        let _request = UnderWay::begin(&self.link.batches);
        if self.asking { self.link.run_asking(call).await } else { self.link.run(call).await }
    }

    /// Subscribes to the channel of a group, if the group has one of its own. This comes before the
    /// store learns of the group's waiters.
    pub(crate) async fn enter(&self, waiters: &WaiterRegistry, base: &str) -> RedisResult<()> {
        self.link.listen();
        let channel = if self.asking { None } else { waiters.must_subscribe(base, &self.link) };
        let Some(channel) = channel else { return Ok(()) };
        let Err(error) = self.link.subscribe(&channel).await else { return Ok(()) };
        waiters.refused(base, &self.link);
        if self.link.has_ended() {
            return Err(error);
        }
        // The waiter continues without a channel, and polls. The script meets any other refusal,
        // too: it is redirected, or the node can't serve now.
        let forbidden = error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoPerm);
        if forbidden && self.link.disable_pushes() {
            tracing::warn!(target: "lockkit", %error, "the server refuses SSUBSCRIBE: waiters only poll");
        }
        Ok(())
    }
}

impl<'a> Route<'a> {
    pub(crate) fn new(shared: &'a Shared, topology: &'a Topology, slot: u16) -> Self {
        Self { shared, topology, slot, alone: false, ask: None, turns: 0 }
    }

    /// Gives the request a connection for itself, if the configuration makes it wait for replicas.
    pub(crate) fn alone(mut self) -> Self {
        self.alone = true;
        self
    }

    /// Sends a request until a server answers it. A request that is redirected did nothing, and
    /// `request` is called again, with another destination. So it must not change its claim. An
    /// attempt and a transfer do, and have loops of their own. The phase decides whether the
    /// outcome of an error may be unknown.
    ///
    /// The destination is shared, because the compiler cannot prove that the future of a closure
    /// that borrows it is `Send` (rust-lang/rust#102211).
    pub(crate) async fn lead<T, F>(
        &mut self,
        phase: Phase,
        request: impl Fn(Arc<Destination>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = RedisResult<T>>,
    {
        loop {
            let destination = Arc::new(self.next().await?);
            let answer = request(Arc::clone(&destination)).await;
            if let Some(answer) = self.arrive(&destination, answer, phase).await? {
                return Ok(answer);
            }
        }
    }

    /// The next server to ask.
    pub(crate) async fn next(&mut self) -> Result<Destination> {
        self.shared.waiters.sweep();
        let ask = self.ask.take();
        let destination = self.destination_at(ask).await;
        destination.map_err(|error| error::opening(&error, &self.shared.config))
    }

    async fn destination_at(&self, ask: Option<Address>) -> Result<Destination, OpenError> {
        let asking = ask.is_some();
        let node = match (self.topology, ask) {
            (Topology::One(node), _) => Arc::clone(node),
            (Topology::Cluster(cluster), None) => cluster.node_of(self.slot).await?,
            (Topology::Cluster(cluster), Some(address)) => cluster.node_at(&address),
        };
        let open = async {
            let (link, alone) = node.links(self.alone).await?;
            Ok(Destination { link, alone, asking })
        };
        open.await.inspect_err(|_| {
            if let Topology::Cluster(cluster) = self.topology {
                cluster.mark_suspect(self.slot);
            }
        })
    }

    /// The server's answer; `None` if the request must be sent again.
    pub(crate) async fn arrive<T>(
        &mut self,
        destination: &Destination,
        answer: RedisResult<T>,
        phase: Phase,
    ) -> Result<Option<T>> {
        self.shared.waiters.sweep();
        let error = match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        self.turns += 1;
        if self.turns < MOST_TURNS && self.follow(destination, &error).await {
            return Ok(None);
        }
        Err(self.give_up(destination, error, phase))
    }

    /// True if the request can be sent again.
    async fn follow(&mut self, destination: &Destination, error: &RedisError) -> bool {
        let Topology::Cluster(cluster) = self.topology else { return false };
        if self.turns > QUICK_TURNS {
            time::sleep(MOVING_PAUSE).await;
        }
        let redirect = error
            .redirect_node()
            .and_then(|(address, _)| parse(address, destination.link.address()));
        match (error.kind(), redirect) {
            (redis::ErrorKind::Server(ServerErrorKind::Moved), Some(address)) => {
                cluster.moved(self.slot, &address)
            }
            (redis::ErrorKind::Server(ServerErrorKind::Ask), Some(address)) => {
                self.ask = Some(address)
            }
            (redis::ErrorKind::Server(ServerErrorKind::TryAgain), _) => {
                time::sleep(MOVING_PAUSE).await
            }
            _ => return false,
        }
        true
    }

    fn give_up(&self, destination: &Destination, error: RedisError, phase: Phase) -> Error {
        // A demoted primary answers READONLY on this connection for ever.
        let useless = error.is_unrecoverable_error() || error::is_wrong_role(&error);
        if useless {
            destination.sender().end();
        }
        let error = error::from_redis(error, phase, &self.shared.config);
        match self.topology {
            Topology::One(node) if useless => node.retire(&destination.link),
            Topology::Cluster(cluster) if useless => {
                cluster.retire(&destination.link);
                cluster.mark_suspect(self.slot);
            }
            // Another server would give any other error, too.
            topology if error.is_temporary() => topology.mark_suspect(self.slot),
            _ => {}
        }
        error
    }
}

/// Reads `host:port`, where the host may be an IPv6 address. A node that does not know the other
/// one's address leaves the host out. It is then the host that was `asked`.
fn parse(address: &str, asked: &ConnectionAddr) -> Option<Address> {
    let (host, port) = address.rsplit_once(':')?;
    let host = match (host, asked) {
        ("" | "?", ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) => host,
        (host, _) => host,
    };
    Some((host.to_owned(), port.parse().ok()?))
}
