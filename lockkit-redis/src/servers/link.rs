//! Keeps one connection to the server, and what is known about it.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lockkit_core::{Clock, Tick, spi::ServerClock};
use redis::{
    Cmd, ConnectionAddr, Pipeline, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection,
};
use tokio::runtime::Handle;

use super::{collected::Batches, subscription_connection::SubscriptionConnection};
use crate::script::Call;

/// A multiplexed connection. All claims share it, unless a request has it for itself. The server
/// applies requests in the order in which they were sent on it.
pub(crate) struct Link {
    number: u64,
    address: ConnectionAddr,
    wire: Wire,
    clock: ServerClock,
    opened: Tick,
    /// False where the server can't push messages, or does not allow it.
    pushes: AtomicBool,
    /// `Some` where messages stay inside a name's slot.
    subscriptions: Option<SubscriptionConnection>,
    /// When the oldest request since the last reply was sent, in ms after `opened`, plus 1. It is 0
    /// if there is none.
    silent_since: AtomicU64,
    pub(super) batches: Batches,
}

/// The client library's connection, and whether it can still be used.
pub(crate) struct Wire {
    pub(crate) connection: MultiplexedConnection,
    /// Lives as long as the task that drives the connection; `None` if lockkit can't see that.
    pub(crate) driver: Option<Weak<()>>,
    /// Set when the connection was closed by the server, or broke.
    pub(crate) ended: Arc<AtomicBool>,
    /// The runtime that drives the connection.
    pub(crate) runtime: Handle,
}

impl Link {
    pub(crate) fn new(
        number: u64,
        address: ConnectionAddr,
        wire: Wire,
        clock: ServerClock,
        pushes: bool,
        subscriptions: Option<SubscriptionConnection>,
    ) -> Self {
        Self {
            number,
            address,
            wire,
            clock,
            opened: Clock::Boot.now(),
            pushes: AtomicBool::new(pushes),
            subscriptions,
            silent_since: AtomicU64::new(0),
            batches: Batches::default(),
        }
    }

    /// A number that rises from one connection to the next.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The server's address.
    pub(crate) fn address(&self) -> &ConnectionAddr {
        &self.address
    }

    /// The bare connection, for callers that talk to the server by themselves.
    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.wire.connection.clone()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.wire.runtime
    }

    pub(crate) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    /// Marks the connection as unusable.
    pub(crate) fn end(&self) {
        self.wire.ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.wire.ended.load(Ordering::Acquire)
            || self.wire.driver.as_ref().is_some_and(|driver| driver.strong_count() == 0)
            || self.subscriptions.as_ref().is_some_and(SubscriptionConnection::has_ended)
    }

    /// True if the server can send messages to waiters now, as far as we know.
    pub(crate) fn pushes(&self) -> bool {
        self.pushes.load(Ordering::Relaxed)
            && !self.subscriptions.as_ref().is_some_and(SubscriptionConnection::is_unavailable)
    }

    /// Opens the connection for messages, because a claim waits. Does nothing if there is none to
    /// open, or if it is open or being opened.
    pub(crate) fn listen(&self) {
        if let Some(subscriptions) =
            self.subscriptions.as_ref().filter(|_| self.pushes.load(Ordering::Relaxed))
        {
            subscriptions.open();
        }
    }

    /// The command with which a script sends a message to a waiter.
    pub(crate) fn publish(&self) -> &'static str {
        if self.is_sharded() { "SPUBLISH" } else { "PUBLISH" }
    }

    pub(crate) fn is_sharded(&self) -> bool {
        self.subscriptions.is_some()
    }

    pub(crate) fn disable_pushes(&self) -> bool {
        self.pushes.swap(false, Ordering::Relaxed)
    }

    /// True if a request has waited for longer than `patience` and nothing was received since. A
    /// connection can be dead for a quarter of an hour before the operating system says so.
    pub(crate) fn is_silent(&self, patience: Duration) -> bool {
        let since = self.silent_since.load(Ordering::Relaxed);
        since != 0 && Duration::from_millis(self.age().saturating_sub(since)) > patience
    }

    /// True if a request was sent and not answered.
    pub(crate) fn is_asked(&self) -> bool {
        self.silent_since.load(Ordering::Relaxed) != 0
    }

    /// Runs a script. If the server has forgotten the script, this takes one more round trip.
    pub(crate) async fn run(&self, call: &Call<'_>) -> RedisResult<Value> {
        match self.send(&call.by_hash()).await?.extract_error() {
            Err(error) if is_no_script(&error) => self.send(&call.by_text()).await?.extract_error(),
            reply => reply,
        }
    }

    /// Runs a script about a slot that is moving to this node.
    pub(crate) async fn run_asking(&self, call: &Call<'_>) -> RedisResult<Value> {
        let send = async |script: Cmd| {
            let mut both = Pipeline::with_capacity(2);
            both.cmd("ASKING").add_command(script);
            self.send_all(&both).await?.pop().ok_or_else(missing_answer)?.extract_error()
        };
        match send(call.by_hash()).await {
            Err(error) if is_no_script(&error) => send(call.by_text()).await,
            reply => reply,
        }
    }

    /// Runs a script, and directly after it WAIT, until this many replicas have what the script
    /// wrote, or `timeout` has passed. The second answer says how many have it. Blocks the
    /// connection.
    ///
    /// WAIT is never sent alone: on a connection that has written nothing, it counts every replica.
    pub(crate) async fn run_and_wait(
        &self,
        asking: bool,
        call: &Call<'_>,
        replicas: u32,
        timeout: Duration,
    ) -> RedisResult<(Value, RedisResult<Value>)> {
        let mut wait = redis::cmd("WAIT");
        // With 0, WAIT would never time out.
        wait.arg(replicas).arg(timeout.as_millis().max(1));
        let send = async |script: Cmd| {
            let mut all = Pipeline::with_capacity(3);
            if asking {
                all.cmd("ASKING");
            }
            all.add_command(script).add_command(wait.clone());
            let mut replies = self.send_all(&all).await?;
            match (replies.pop(), replies.pop()) {
                (Some(waited), Some(reply)) => Ok((reply.extract_error(), waited)),
                _ => Err(missing_answer()),
            }
        };
        let (reply, waited) = match send(call.by_hash()).await? {
            (Err(error), _) if is_no_script(&error) => send(call.by_text()).await?,
            answers => answers,
        };
        Ok((reply?, waited.extract_error()))
    }

    /// Subscribes to a channel of the slot.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        match &self.subscriptions {
            // Boxed, because it is rare and large.
            Some(subscriptions) => Box::pin(subscriptions.subscribe(channel)).await,
            None => Ok(()),
        }
    }

    /// Leaves a channel of the slot, without waiting for an answer. False if the queue is full.
    pub(crate) fn unsubscribe(&self, channel: &str) -> bool {
        self.has_ended()
            || self
                .subscriptions
                .as_ref()
                .is_none_or(|subscriptions| subscriptions.unsubscribe(channel))
    }

    /// Sends one command.
    pub(crate) async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        self.send(command).await?.extract_error()
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.asked();
        let reply = self.wire.connection.clone().send_packed_command(command).await?;
        self.heard();
        Ok(reply)
    }

    /// Sends several commands at once. The answer to each may be an error of its own.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        self.asked();
        let replies =
            self.wire.connection.clone().send_packed_commands(commands, 0, commands.len()).await?;
        self.heard();
        Ok(replies)
    }

    fn asked(&self) {
        if self.silent_since.load(Ordering::Relaxed) == 0 {
            self.silent_since.store(self.age() + 1, Ordering::Relaxed);
        }
    }

    fn heard(&self) {
        self.silent_since.store(0, Ordering::Relaxed);
    }

    fn age(&self) -> u64 {
        u64::try_from(self.opened.until(Clock::Boot.now()).as_millis()).unwrap_or(u64::MAX - 1)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("number", &self.number)
            .field("ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}

fn missing_answer() -> redis::RedisError {
    (redis::ErrorKind::UnexpectedReturnType, "fewer answers than requests").into()
}

fn is_no_script(error: &redis::RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}
