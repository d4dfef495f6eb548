//! The way of one request to the node that can answer it.

use std::{sync::Arc, time::Duration};

use lockkit_core::{Error, Result};
use redis::{RedisError, RedisResult, ServerErrorKind, Value};
use tokio::time;

use crate::{
    cluster::{Address, Cluster},
    error::{self, Phase},
    link::Link,
    node::Node,
    script::Call,
    shared::Shared,
    waiting::Rooms,
};

/// Which servers there are.
#[derive(Debug)]
pub(crate) enum Topology {
    /// One at a time.
    One(Node),
    Cluster(Cluster),
}

/// A request may be sent on so often. Each time it did nothing, so that it is as good as new.
const MOST_TURNS: u32 = 24;
/// While the keys of a slot are on their way to another node, neither can answer.
const MOVING_PAUSE: Duration = Duration::from_millis(10);

/// One request's way.
#[derive(Debug)]
pub(crate) struct Route<'a> {
    shared: &'a Shared,
    topology: &'a Topology,
    slot: u16,
    /// Where to go next, for once.
    ask: Option<Address>,
    turns: u32,
}

/// Where a request is sent now.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) link: Arc<Link>,
    /// The slot is on its way to this node.
    asking: bool,
}

impl Stop {
    pub(crate) async fn run(&self, call: &Call<'_>) -> RedisResult<Value> {
        if self.asking { self.link.run_asking(call).await } else { self.link.run(call).await }
    }

    /// As [`run`](Self::run), and before it subscribes to the channel of a room if that has one of its own.
    pub(crate) async fn run_in_room(&self, rooms: &Rooms, base: &str, call: &Call<'_>) -> RedisResult<Value> {
        let channel = if self.asking { None } else { rooms.must_subscribe(base, &self.link) };
        let Some(channel) = channel else { return self.run(call).await };
        let (subscribed, reply) = self.link.subscribe_and_run(&channel, call).await?;
        match subscribed {
            Ok(_) => rooms.subscribed(base, &self.link),
            // It goes where the script goes.
            Err(error) if error.redirect_node().is_some() => {}
            Err(error) => {
                if error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoPerm)
                    && self.link.disable_pushes()
                {
                    tracing::warn!(target: "lockkit", %error, "the server refuses SSUBSCRIBE: waiters only poll");
                }
            }
        }
        reply
    }
}

impl<'a> Route<'a> {
    pub(crate) fn new(shared: &'a Shared, topology: &'a Topology, slot: u16) -> Self {
        Self { shared, topology, slot, ask: None, turns: 0 }
    }

    /// The next server to ask.
    pub(crate) async fn next(&mut self) -> Result<Stop> {
        self.shared.rooms.sweep();
        let ask = self.ask.take();
        let link = match (self.topology, &ask) {
            (Topology::One(node), _) => node.link().await,
            (Topology::Cluster(cluster), None) => cluster.link(self.slot).await,
            (Topology::Cluster(cluster), Some(address)) => cluster.link_to(address).await,
        };
        let link = link.map_err(|error| error::opening(&error, &self.shared.config))?;
        Ok(Stop { link, asking: ask.is_some() })
    }

    /// What a server has answered; `None` if it sends the request on.
    pub(crate) async fn arrive<T>(
        &mut self,
        stop: &Stop,
        answer: RedisResult<T>,
        phase: Phase,
    ) -> Result<Option<T>> {
        self.shared.rooms.sweep();
        let error = match answer {
            Ok(answer) => return Ok(Some(answer)),
            Err(error) => error,
        };
        self.turns += 1;
        if self.turns < MOST_TURNS && self.follow(&error).await {
            return Ok(None);
        }
        Err(self.give_up(stop, error, phase))
    }

    /// True if the request has somewhere to go.
    async fn follow(&mut self, error: &RedisError) -> bool {
        let Topology::Cluster(cluster) = self.topology else { return false };
        let redirect = error.redirect_node().and_then(|(address, _)| parse(address));
        match (error.kind(), redirect) {
            (redis::ErrorKind::Server(ServerErrorKind::Moved), Some(address)) => {
                cluster.moved(self.slot, &address)
            }
            (redis::ErrorKind::Server(ServerErrorKind::Ask), Some(address)) => self.ask = Some(address),
            (redis::ErrorKind::Server(ServerErrorKind::TryAgain), _) => time::sleep(MOVING_PAUSE).await,
            _ => return false,
        }
        true
    }

    fn give_up(&self, stop: &Stop, error: RedisError, phase: Phase) -> Error {
        // A primary that was demoted answers READONLY on this connection for ever.
        let useless = error.is_unrecoverable_error() || error::is_wrong_role(&error);
        match self.topology {
            Topology::One(node) if useless => node.retire(&stop.link),
            Topology::Cluster(cluster) if useless => cluster.retire(&stop.link),
            Topology::Cluster(cluster) => cluster.doubt(),
            Topology::One(_) => {}
        }
        error::from_redis(error, phase, &self.shared.config)
    }
}

/// `host:port`, and the host may be an IPv6 address.
fn parse(address: &str) -> Option<Address> {
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}
