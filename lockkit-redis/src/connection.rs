//! The one connection of a locker: opened when it is needed, by one caller for all, and replaced when it is of no use
//! any more.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use lockkit_core::{Clock, Result, Tick, spi::ServerClock};
use redis::{
    AsyncConnectionConfig, Client, ProtocolVersion, PushInfo, PushKind, RedisError, RedisResult, Value,
    aio::MultiplexedConnection,
};
use tokio::{runtime::Handle, time};

use crate::{
    config::Config,
    error::{self, OpenError, Phase},
    link::Link,
    notify::Waiters,
    script::{self, Call},
};

/// How many requests may be queued before callers have to wait for a place in the queue.
const QUEUE: usize = 1024;

/// The way to the server.
pub(crate) struct Connection {
    config: Config,
    waiters: Arc<Waiters>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    link: Option<Arc<Link>>,
    /// Polled by all who wait for it; if all of them give up, the next one goes on with it.
    opening: Option<Opening>,
    opened: u64,
    closed: bool,
}

#[derive(Clone)]
struct Opening {
    since: Tick,
    future: Shared<BoxFuture<'static, Result<Arc<Link>, OpenError>>>,
}

impl Connection {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, waiters: Arc::default(), state: Mutex::default() }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// A connection that is good as far as we know.
    pub(crate) async fn link(&self) -> Result<Arc<Link>> {
        self.waiters.sweep();
        let opening = match self.current() {
            Ok(link) => return Ok(link),
            Err(opening) => opening.map_err(|error| error::opening(&error, &self.config))?,
        };
        let result = opening.future.clone().await;
        let mut state = self.lock();
        if state.opening.as_ref().is_some_and(|present| present.future.ptr_eq(&opening.future)) {
            state.opening = None;
        }
        let result = match result {
            Ok(_) if state.closed => Err(OpenError::Closed),
            // Another one may have been opened meanwhile; all must use the same.
            Ok(link) => Ok(Arc::clone(state.link.get_or_insert(link))),
            Err(error) => Err(error),
        };
        drop(state);
        result.map_err(|error| error::opening(&error, &self.config))
    }

    /// Runs a script that writes and answers with a number.
    pub(crate) async fn run_for_number(&self, call: &Call<'_>) -> Result<i64> {
        let link = self.link().await?;
        let answer = link.run(call).await.and_then(|reply| script::number(&reply));
        self.checked(&link, answer, Phase::Write)
    }

    /// Bounds what nobody else bounds: waits for as long as a silent connection is trusted.
    pub(crate) async fn patiently<T>(&self, request: impl Future<Output = T>) -> Result<T> {
        let answer = time::timeout(self.config.connect_timeout, request).await;
        answer.map_err(|_| error::opening(&OpenError::Silent, &self.config))
    }

    /// Turns an error of the client into one of ours, and gives a connection up that can't be used any more.
    pub(crate) fn checked<T>(&self, link: &Arc<Link>, result: RedisResult<T>, phase: Phase) -> Result<T> {
        self.waiters.sweep();
        result.map_err(|error| {
            // A primary that was demoted answers READONLY on this connection for ever.
            if error.is_unrecoverable_error() || error::is_wrong_role(&error) {
                self.retire(link);
            }
            error::from_redis(error, phase, &self.config)
        })
    }

    /// Drops the connection. Requests that are under way on it may still be answered.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.opening = None;
        let link = state.link.take();
        drop(state);
        drop(link);
    }

    /// The present connection, or the way to the next one.
    fn current(&self) -> std::result::Result<Arc<Link>, Result<Opening, OpenError>> {
        let mut state = self.lock();
        let usable = |link: &&Arc<Link>| !link.has_ended() && !link.is_silent(self.config.connect_timeout);
        if let Some(link) = state.link.as_ref().filter(usable) {
            return Ok(Arc::clone(link));
        }
        if state.closed {
            return Err(Err(OpenError::Closed));
        }
        if Handle::try_current().is_err() {
            return Err(Err(OpenError::NoRuntime));
        }
        let retired = state.link.take();
        // One that all have given up, and nobody has polled for long, has timed out without knowing it.
        let now = Clock::Boot.now();
        let fresh = |opening: &&Opening| opening.since.after(self.config.connect_timeout) > now;
        let opening = match state.opening.as_ref().filter(fresh) {
            Some(opening) => opening.clone(),
            None => {
                state.opened += 1;
                let future = open(self.config.clone(), Arc::clone(&self.waiters), state.opened);
                let opening = Opening { since: now, future: future.boxed().shared() };
                state.opening.insert(opening).clone()
            }
        };
        drop(state);
        if retired.is_some() {
            self.waiters.ring_all();
        }
        Err(Ok(opening))
    }

    fn retire(&self, link: &Arc<Link>) {
        let retired = self.lock().link.take_if(|present| Arc::ptr_eq(present, link));
        if retired.is_some() {
            self.waiters.ring_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("config", &self.config).finish_non_exhaustive()
    }
}

async fn open(config: Config, waiters: Arc<Waiters>, number: u64) -> Result<Arc<Link>, OpenError> {
    let limit = config.connect_timeout;
    match time::timeout(limit, handshake(&config, waiters, number)).await {
        Ok(Ok(link)) => {
            tracing::debug!(target: "lockkit", backend = error::BACKEND, number, "connected");
            Ok(Arc::new(link))
        }
        Ok(Err(error)) => Err(error),
        Err(_) => Err(OpenError::Silent),
    }
}

async fn handshake(config: &Config, waiters: Arc<Waiters>, number: u64) -> Result<Link, OpenError> {
    let ended = Arc::new(AtomicBool::new(false));
    let on_push = {
        let ended = Arc::clone(&ended);
        move |push: PushInfo| {
            if push.kind == PushKind::Disconnection {
                ended.store(true, Ordering::Release);
                waiters.ring_all();
            } else {
                waiters.on_push(&push);
            }
            Ok::<(), ()>(())
        }
    };
    // The driver bounds each request by op_timeout, so the client must not.
    let settings = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(QUEUE);
    let modern = connect(config, ProtocolVersion::RESP3, settings.clone().set_push_sender(on_push)).await;
    let (mut connection, pushes) = match modern {
        Ok(connection) => (connection, true),
        Err(error) if error::refuses_resp3(&error) => {
            tracing::debug!(target: "lockkit", "the server does not speak RESP3: waiters only poll");
            (connect(config, ProtocolVersion::RESP2, settings).await?, false)
        }
        Err(error) => return Err(error.into()),
    };

    let mut questions = redis::pipe();
    questions.cmd("TIME").cmd("ROLE");
    let sent = Clock::Boot.now();
    let answers = connection.send_packed_commands(&questions, 0, 2).await?;
    let Ok([time, role]) = <[Value; 2]>::try_from(answers) else { return Err(OpenError::Strange) };
    match role.extract_error() {
        // Only a primary takes writes.
        Ok(Value::Array(role)) if !is_primary(&role) => return Err(OpenError::Replica),
        Ok(_) => {}
        Err(error) => tracing::debug!(target: "lockkit", %error, "the server does not tell its role"),
    }
    let (seconds, micros): (i64, i64) =
        redis::from_redis_value(time.extract_error()?).map_err(|_| OpenError::Strange)?;
    let clock = ServerClock::new(sent, seconds.saturating_mul(1_000_000).saturating_add(micros));
    Ok(Link::new(number, connection, clock, pushes, ended))
}

async fn connect(
    config: &Config,
    protocol: ProtocolVersion,
    settings: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let client = Client::open(config.connection_info(protocol)?)?;
    client.get_multiplexed_async_connection_with_config(&settings).await
}

fn is_primary(role: &[Value]) -> bool {
    matches!(role.first(), Some(Value::BulkString(name)) if name == b"master")
}

#[cfg(test)]
mod tests {
    use lockkit_core::spi::Hint;
    use lockkit_fixture::RedisServer;

    use super::*;

    #[tokio::test]
    async fn c6_one_who_still_uses_an_older_connection_leaves_no_subscription_on_the_newer() {
        let server = RedisServer::start().unwrap();
        let connection = Connection::new(Config::new("127.0.0.1", server.port()));
        let old = connection.link().await.unwrap();
        connection.retire(&old);
        let new = connection.link().await.unwrap();
        let channel: Arc<str> = "c".into();
        let call = Call { script: &script::INSPECT, keys: &["a", "b"], args: &[] };
        let join = || connection.waiters().join(&channel, Hint::none());
        let (early, late) = (join(), join());
        assert!(early.must_subscribe(&new));
        late.subscribed(&old);
        assert!(early.must_subscribe(&new));
        new.subscribe_and_run(&channel, &call).await.unwrap().0.unwrap();
        early.subscribed(&new);
        assert!(late.must_subscribe(&old));
        assert!(!early.must_subscribe(&new));
        drop((early, late));
        new.run(&call).await.unwrap();
        let settings = AsyncConnectionConfig::new();
        let mut admin = connect(connection.config(), ProtocolVersion::RESP2, settings).await.unwrap();
        let channels: Vec<String> =
            redis::cmd("PUBSUB").arg("CHANNELS").query_async(&mut admin).await.unwrap();
        assert!(channels.is_empty(), "{channels:?}");
    }
}
