//! One connection to the server, and what is known about it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use lockkit_core::{Clock, Tick, spi::ServerClock};
use redis::{Cmd, Pipeline, RedisResult, ServerErrorKind, Value, aio::MultiplexedConnection};
use tokio::task;

use crate::script::Call;

/// A multiplexed connection, shared by all claims. What is sent on it is applied in the order in which it was sent.
pub(crate) struct Link {
    number: u64,
    connection: MultiplexedConnection,
    clock: ServerClock,
    opened: Tick,
    /// Set when the connection was closed by the server, or broke.
    ended: Arc<AtomicBool>,
    /// False where the server can't push messages, or does not allow it.
    pushes: AtomicBool,
    /// Messages stay inside a name's slot.
    sharded: bool,
    /// When the oldest request was sent since the last reply, in ms after `opened`, plus 1; 0 if there is none.
    silent_since: AtomicU64,
}

impl Link {
    pub(crate) fn new(
        number: u64,
        connection: MultiplexedConnection,
        clock: ServerClock,
        pushes: bool,
        sharded: bool,
        ended: Arc<AtomicBool>,
    ) -> Self {
        Self {
            number,
            connection,
            clock,
            opened: Clock::Boot.now(),
            ended,
            pushes: AtomicBool::new(pushes),
            sharded,
            silent_since: AtomicU64::new(0),
        }
    }

    /// Rises from one connection to the next.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn clock(&self) -> &ServerClock {
        &self.clock
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn pushes(&self) -> bool {
        self.pushes.load(Ordering::Relaxed)
    }

    /// How a script tells a waiter.
    pub(crate) fn publish(&self) -> &'static str {
        if self.sharded { "SPUBLISH" } else { "PUBLISH" }
    }

    pub(crate) fn is_sharded(&self) -> bool {
        self.sharded
    }

    pub(crate) fn disable_pushes(&self) -> bool {
        self.pushes.swap(false, Ordering::Relaxed)
    }

    /// True if a request has waited for longer than `patience` and nothing was heard since. A connection can be dead
    /// for a quarter of an hour before the operating system says so.
    pub(crate) fn is_silent(&self, patience: Duration) -> bool {
        let since = self.silent_since.load(Ordering::Relaxed);
        since != 0 && Duration::from_millis(self.age().saturating_sub(since)) > patience
    }

    /// Runs a script, with one trip more if the server has forgotten it.
    pub(crate) async fn run(&self, call: &Call<'_>) -> RedisResult<Value> {
        match self.send(&call.by_hash()).await?.extract_error() {
            Err(error) if is_no_script(&error) => self.send(&call.by_text()).await?.extract_error(),
            reply => reply,
        }
    }

    /// Runs a script about a slot that is on its way to this node.
    pub(crate) async fn run_asking(&self, call: &Call<'_>) -> RedisResult<Value> {
        let asking = redis::cmd("ASKING");
        let (_, reply) = self.send_both(&asking, &call.by_hash()).await?;
        match reply.extract_error() {
            Err(error) if is_no_script(&error) => {
                self.send_both(&asking, &call.by_text()).await?.1.extract_error()
            }
            reply => reply,
        }
    }

    /// Subscribes to a channel of the slot and runs a script right behind it. The first answer is about the
    /// subscription.
    pub(crate) async fn subscribe_and_run(
        &self,
        channel: &str,
        call: &Call<'_>,
    ) -> RedisResult<(RedisResult<Value>, RedisResult<Value>)> {
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        subscribe.arg(channel);
        let (subscribed, reply) = self.send_both(&subscribe, &call.by_hash()).await?;
        let reply = match reply.extract_error() {
            Err(error) if is_no_script(&error) => self.send(&call.by_text()).await?.extract_error(),
            reply => reply,
        };
        Ok((subscribed.extract_error(), reply))
    }

    /// Queues an UNSUBSCRIBE without waiting for its answer. False if the queue is full.
    pub(crate) fn unsubscribe(&self, channel: &str) -> bool {
        if self.has_ended() {
            return true;
        }
        let mut command = redis::cmd("SUNSUBSCRIBE");
        command.arg(channel).set_no_response(true);
        let mut connection = self.connection.clone();
        // Not cooperative: a task that has used up its budget would find the queue full.
        task::unconstrained(connection.send_packed_command(&command)).now_or_never().is_some()
    }

    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.asked();
        let reply = self.connection.clone().send_packed_command(command).await?;
        self.heard();
        Ok(reply)
    }

    async fn send_both(&self, first: &Cmd, second: &Cmd) -> RedisResult<(Value, Value)> {
        let mut both = Pipeline::with_capacity(2);
        both.add_command(first.clone()).add_command(second.clone());
        self.asked();
        let replies = self.connection.clone().send_packed_commands(&both, 0, 2).await?;
        self.heard();
        match <[Value; 2]>::try_from(replies) {
            Ok([first, second]) => Ok((first, second)),
            Err(_) => {
                Err((redis::ErrorKind::UnexpectedReturnType, "two requests, and not two answers").into())
            }
        }
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
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

fn is_no_script(error: &redis::RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}
