//! The connection on which the messages of slots come in.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::FutureExt as _;
use redis::{
    ConnectionAddr, ProtocolVersion, PushKind, RedisError, RedisResult, Value, aio::MultiplexedConnection,
};
use tokio::{sync::OnceCell, task, time};

use super::handshake::{Driver, connect, listener, settings};
use crate::shared::Shared;

/// A connection for subscriptions to the channels of slots, and nothing else; opened by the first one who waits.
///
/// When a slot moves to another node, the server confirms an SUNSUBSCRIBE that nobody sent, and the client library takes
/// that for the answer to the oldest request on the connection: from then on each request gets the answer of the one
/// before it. So no request whose answer matters may be sent here.
pub(crate) struct Ears {
    shared: Arc<Shared>,
    address: ConnectionAddr,
    /// That of the connection for requests, which ends with this one.
    number: u64,
    ended: Arc<AtomicBool>,
    connection: OnceCell<(MultiplexedConnection, Driver)>,
}

impl Ears {
    pub(crate) fn new(
        shared: Arc<Shared>,
        address: ConnectionAddr,
        number: u64,
        ended: Arc<AtomicBool>,
    ) -> Self {
        Self { shared, address, number, ended, connection: OnceCell::new() }
    }

    /// True if the connection's task ended with its runtime.
    pub(crate) fn have_ended(&self) -> bool {
        self.connection.get().is_some_and(|(_, driver)| driver.strong_count() == 0)
    }

    /// Subscribes to a channel, and waits until that is confirmed.
    ///
    /// A connection that breaks takes the one for requests with it. One that can't be opened does not: the server may take no
    /// more connections, and those that it has carry the renewals of all that is held.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        let confirmed = time::timeout(self.shared.config.connect_timeout, self.try_subscribe(channel)).await;
        let answer = confirmed.unwrap_or_else(|_| Err(broken(std::io::ErrorKind::TimedOut)));
        if self.connection.initialized() && answer.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
            self.ended.store(true, Ordering::Release);
        }
        answer
    }

    async fn try_subscribe(&self, channel: &str) -> RedisResult<()> {
        let open = async || {
            let (listener, driver) = listener(&self.shared, self.number, &self.ended);
            let settings = settings().set_push_sender(listener);
            let opened = connect(&self.shared.config, &self.address, ProtocolVersion::RESP3, settings).await;
            opened.map(|connection| (connection, driver))
        };
        let (mut connection, _) = self.connection.get_or_try_init(open).await?.clone();
        let mut subscribe = redis::cmd("SSUBSCRIBE");
        subscribe.arg(channel);
        match connection.send_packed_command(&subscribe).await?.extract_error()? {
            Value::Push { kind: PushKind::SSubscribe, data } if names(&data, channel) => Ok(()),
            // The answers have slipped.
            _ => Err(broken(std::io::ErrorKind::ConnectionAborted)),
        }
    }

    /// Queues an SUNSUBSCRIBE without waiting for its answer. False if the queue is full.
    pub(crate) fn unsubscribe(&self, channel: &str) -> bool {
        let Some((connection, _)) = self.connection.get() else { return true };
        let mut command = redis::cmd("SUNSUBSCRIBE");
        command.arg(channel).set_no_response(true);
        let mut connection = connection.clone();
        // Not cooperative: a task that has used up its budget would find the queue full.
        task::unconstrained(connection.send_packed_command(&command)).now_or_never().is_some()
    }
}

impl fmt::Debug for Ears {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ears").field("number", &self.number).finish_non_exhaustive()
    }
}

fn names(confirmation: &[Value], channel: &str) -> bool {
    matches!(confirmation.first(), Some(Value::BulkString(name)) if name == channel.as_bytes())
}

fn broken(kind: std::io::ErrorKind) -> RedisError {
    std::io::Error::from(kind).into()
}
