//! Keeps the connection on which the messages of slots arrive.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt as _;
use lockkit_core::{Clock, Tick};
use redis::{
    ConnectionAddr, ProtocolVersion, PushKind, RedisError, RedisResult, Value,
    aio::MultiplexedConnection,
};
use tokio::{runtime::Handle, sync::watch, task, time};

use super::connect::{Driver, connect, listener, settings};
use crate::shared::Shared;

/// After a connection could not be opened, the next attempt comes no sooner than this.
const PAUSE: Duration = Duration::from_secs(1);
/// Waiters wait for a connection that is being opened: for the connect timeout divided by this.
/// After that they poll.
const PATIENCE: u32 = 4;

/// A connection for subscriptions to the channels of slots, and for nothing else. The first waiter
/// opens it.
///
/// When a slot moves to another node, the server confirms an SUNSUBSCRIBE that lockkit did not
/// send. The client library takes that for the answer to the oldest request on the connection. From
/// then on, each request gets the answer of the one before it. So no request whose answer matters
/// may be sent here.
pub(crate) struct SubscriptionConnection {
    shared: Arc<Shared>,
    address: ConnectionAddr,
    /// The number of the connection for requests, which ends with this one.
    number: u64,
    ended: Arc<AtomicBool>,
    state: watch::Sender<State>,
}

#[derive(Clone)]
enum State {
    /// No waiter has needed it so far.
    Unused,
    /// A task has been opening it since then.
    Opening(Tick),
    /// It could not be opened at this time.
    Failed(Tick),
    Open(MultiplexedConnection, Driver),
}

impl SubscriptionConnection {
    pub(crate) fn new(
        shared: Arc<Shared>,
        address: ConnectionAddr,
        number: u64,
        ended: Arc<AtomicBool>,
    ) -> Self {
        let (state, _) = watch::channel(State::Unused);
        Self { shared, address, number, ended, state }
    }

    /// True if the connection's task ended with its runtime.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(&*self.state.borrow(), State::Open(_, driver) if driver.strong_count() == 0)
    }

    /// True if the connection can't be opened now, or if that takes long.
    pub(crate) fn is_unavailable(&self) -> bool {
        match *self.state.borrow() {
            State::Unused | State::Open(..) => false,
            State::Opening(since) => since.after(self.patience()) <= Clock::Boot.now(),
            State::Failed(_) => true,
        }
    }

    fn patience(&self) -> Duration {
        self.shared.config.connect_timeout / PATIENCE
    }

    /// Starts a task that opens the connection. Does nothing if the connection is open or being
    /// opened, or if that failed just now. No caller waits for the task longer than it wants to:
    /// the server may take no more connections, or not answer on new ones.
    pub(crate) fn open(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let now = Clock::Boot.now();
        // A task that has ended with its runtime can't report that.
        let longest = self.shared.config.connect_timeout.saturating_add(PAUSE);
        let begins = self.state.send_if_modified(|state| {
            let due = match state {
                State::Unused => true,
                State::Opening(since) => since.after(longest) <= now,
                State::Failed(at) => at.after(PAUSE) <= now,
                State::Open(..) => false,
            };
            if due {
                *state = State::Opening(now);
            }
            due
        });
        if begins {
            let shared = Arc::clone(&self.shared);
            let ended = Arc::clone(&self.ended);
            let opening =
                open(shared, self.address.clone(), self.number, ended, self.state.clone());
            #[expect(
                clippy::disallowed_methods,
                reason = "one for each connection, for as long as it is opened"
            )]
            runtime.spawn(opening);
        }
    }

    /// Subscribes to a channel, and waits until the server confirms that.
    ///
    /// If this connection breaks, the connection for requests ends, too. If it can't be opened,
    /// that one does not end. The server may take no more connections, and those that it has carry
    /// the renewals of all holds.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        let Some(connection) = self.opened().await else {
            return Err(broken(std::io::ErrorKind::NotConnected));
        };
        let confirmed =
            time::timeout(self.shared.config.connect_timeout, confirm(connection, channel)).await;
        let answer = confirmed.unwrap_or_else(|_| Err(broken(std::io::ErrorKind::TimedOut)));
        if answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
            self.ended.store(true, Ordering::Release);
        }
        answer
    }

    async fn opened(&self) -> Option<MultiplexedConnection> {
        self.open();
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Opening(_)));
        // The code below looks at the state again.
        let _ = time::timeout(self.patience(), settled).await;
        match &*self.state.borrow() {
            State::Open(connection, _) => Some(connection.clone()),
            State::Unused | State::Opening(_) | State::Failed(_) => None,
        }
    }

    /// Queues an SUNSUBSCRIBE without waiting for its answer. False if the queue is full.
    pub(crate) fn unsubscribe(&self, channel: &str) -> bool {
        let State::Open(connection, _) = &*self.state.borrow() else { return true };
        let mut command = redis::cmd("SUNSUBSCRIBE");
        command.arg(channel).set_no_response(true);
        let mut connection = connection.clone();
        // Not cooperative: a task that has used up its budget would see a full queue.
        task::unconstrained(connection.send_packed_command(&command)).now_or_never().is_some()
    }
}

/// Opens the connection, and records the outcome. The connection is closed again if nothing needs
/// it any more.
async fn open(
    shared: Arc<Shared>,
    address: ConnectionAddr,
    number: u64,
    ended: Arc<AtomicBool>,
    state: watch::Sender<State>,
) {
    let (listener, driver) = listener(&shared, number, &ended);
    let settings = settings().set_push_sender(listener);
    let connect = connect(&shared.config, &address, ProtocolVersion::RESP3, settings);
    let opened = time::timeout(shared.config.connect_timeout, connect).await;
    state.send_replace(match opened {
        Ok(Ok(connection)) => State::Open(connection, driver),
        failure => {
            let error = failure.map_or(None, Result::err);
            tracing::debug!(target: "lockkit", ?error, "no connection for messages to waiters: they poll");
            State::Failed(Clock::Boot.now())
        }
    });
}

async fn confirm(mut connection: MultiplexedConnection, channel: &str) -> RedisResult<()> {
    let mut subscribe = redis::cmd("SSUBSCRIBE");
    subscribe.arg(channel);
    match connection.send_packed_command(&subscribe).await?.extract_error()? {
        Value::Push { kind: PushKind::SSubscribe, data } if names(&data, channel) => Ok(()),
        // The answers no longer belong to their requests.
        _ => Err(broken(std::io::ErrorKind::ConnectionAborted)),
    }
}

impl fmt::Debug for SubscriptionConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionConnection")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

fn names(confirmation: &[Value], channel: &str) -> bool {
    matches!(confirmation.first(), Some(Value::BulkString(name)) if name == channel.as_bytes())
}

fn broken(kind: std::io::ErrorKind) -> RedisError {
    std::io::Error::from(kind).into()
}
