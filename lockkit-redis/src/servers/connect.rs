//! Opens a connection to a server, and receives what the server pushes.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ProtocolVersion, PushInfo, PushKind, RedisError,
    aio::MultiplexedConnection,
};

use crate::{config::Config, shared::Shared};

/// How many requests may be queued before callers have to wait for a place in the queue.
const QUEUE: usize = 1024;

/// The settings of a connection whose users bound each request by op_timeout. So the client library
/// must not set a bound.
///
/// Each request needs that bound, also on a connection that ends. The client library passes
/// requests to its task by a channel of tokio. A request that is sent just when the task ends may
/// get no answer.
pub(crate) fn settings() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(QUEUE)
}

/// Lives as long as the task that drives a connection. tokio drops that task with its runtime,
/// without a notice.
pub(crate) type Driver = Weak<()>;

/// Receives what a connection pushes, and its end.
pub(crate) fn listener(
    shared: &Shared,
    number: u64,
    ended: &Arc<AtomicBool>,
) -> (impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static, Driver) {
    let ended = Arc::clone(ended);
    let waiters = Arc::clone(&shared.waiters);
    let driven = Arc::new(());
    let driver = Arc::downgrade(&driven);
    let listener = move |push: PushInfo| {
        let _ = &driven;
        if push.kind == PushKind::Disconnection {
            ended.store(true, Ordering::Release);
            waiters.wake_all();
        } else {
            waiters.on_push(&push, number);
        }
        Ok(())
    };
    (listener, driver)
}

/// Opens a connection and logs in.
pub(crate) async fn connect(
    config: &Config,
    address: &ConnectionAddr,
    protocol: ProtocolVersion,
    settings: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, RedisError> {
    let client = Client::open(config.connection_info(address.clone(), protocol)?)?;
    client.get_multiplexed_async_connection_with_config(&settings).await
}
