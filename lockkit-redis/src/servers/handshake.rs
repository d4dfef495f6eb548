//! Logs in on a new connection, checks the server, and subscribes to our messages.

use std::{
    io, panic,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use lockkit_core::{Clock, spi::ServerClock};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ProtocolVersion, RedisResult, Value,
    aio::MultiplexedConnection,
};
use tokio::{runtime::Handle, task::JoinSet};

use super::{
    connect::{connect, listener, settings},
    link::{Link, Wire},
    subscription_connection::SubscriptionConnection,
};
use crate::{
    config::BACKEND,
    error::{self, OpenError},
    shared::Shared,
};

/// Connects to a server, and checks that it can be used. Subscribes to the messages for waiters
/// only if `hears` is true.
pub(crate) async fn handshake(
    shared: &Arc<Shared>,
    address: ConnectionAddr,
    number: u64,
    hears: bool,
) -> Result<Link, OpenError> {
    let config = &shared.config;
    let ended = Arc::new(AtomicBool::new(false));
    let settings = settings();
    let (listener, driver) = listener(shared, number, &ended);
    let heard = settings.clone().set_push_sender(listener);
    let modern = driven(shared, &address, ProtocolVersion::RESP3, heard).await;
    let ((mut connection, runtime), driver) = match modern {
        Ok(connected) => (connected, Some(driver)),
        Err(error) if error::refuses_resp3(&error) => {
            tracing::debug!(target: "lockkit", "the server does not speak RESP3: waiters only poll");
            (driven(shared, &address, ProtocolVersion::RESP2, settings).await?, None)
        }
        Err(error) => return Err(error.into()),
    };

    let mut questions = redis::pipe();
    questions.cmd("TIME").cmd("ROLE").cmd("CONFIG").arg("GET").arg("maxmemory-policy");
    questions.cmd("COMMAND").arg("INFO").arg("SPUBLISH");
    let keyspace = config.keyspace();
    let (key, _) = keyspace.strategy_key();
    questions.cmd("SET").arg(&key).arg(keyspace.strategy()).arg("NX").cmd("GET").arg(&key);
    let sent = Clock::Boot.now();
    let answers = connection.send_packed_commands(&questions, 0, questions.len()).await?;
    let Ok([time, role, policy, spublish, _, strategy]) = <[Value; 6]>::try_from(answers) else {
        return Err(OpenError::Strange);
    };
    check_role(role.extract_error())?;
    check_strategy(strategy.extract_error(), keyspace.strategy())?;
    let (seconds, micros): (i64, i64) =
        redis::from_redis_value(time.extract_error()?).map_err(|_| OpenError::Strange)?;
    check_eviction(shared, policy.extract_error())?;
    let clock = ServerClock::new(sent, seconds.saturating_mul(1_000_000).saturating_add(micros));
    let sharded = config.is_cluster() && knows_command(&spublish);
    let pushes =
        hears && driver.is_some() && (sharded || subscribe(shared, &mut connection).await?);
    let subscriptions = sharded.then(|| {
        SubscriptionConnection::new(Arc::clone(shared), address.clone(), number, Arc::clone(&ended))
    });
    let wire = Wire { connection, driver, ended, runtime };
    Ok(Link::new(number, address, wire, clock, pushes, subscriptions))
}

/// Opens a connection, and says which runtime drives it. A task of that runtime opens it, because
/// callers in several runtimes may poll this future in turn.
async fn driven(
    shared: &Arc<Shared>,
    address: &ConnectionAddr,
    protocol: ProtocolVersion,
    settings: AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, Handle)> {
    let ended = || io::Error::new(io::ErrorKind::NotConnected, "the tokio runtime has ended");
    let runtime = Handle::try_current().map_err(|_| ended())?;
    let shared = Arc::clone(shared);
    let address = address.clone();
    // The task ends with this future.
    let mut opening = JoinSet::new();
    opening.spawn_on(
        async move { connect(&shared.config, &address, protocol, settings).await },
        &runtime,
    );
    match opening.join_next().await {
        Some(Ok(connection)) => Ok((connection?, runtime)),
        Some(Err(error)) if error.is_panic() => panic::resume_unwind(error.into_panic()),
        _ => Err(ended().into()),
    }
}

/// Refuses a replica, because only a primary takes writes.
fn check_role(role: RedisResult<Value>) -> Result<(), OpenError> {
    match role {
        Ok(Value::Array(role)) if !is_primary(&role) => Err(OpenError::Replica),
        Ok(_) => Ok(()),
        Err(error) => {
            tracing::debug!(target: "lockkit", %error, "the server does not tell its role");
            Ok(())
        }
    }
}

fn is_primary(role: &[Value]) -> bool {
    matches!(role.first(), Some(Value::BulkString(name)) if name == b"master")
}

/// All lockers of a prefix must agree on the keys of mutexes, because otherwise they would not
/// exclude each other (C1). In a cluster, only the node that has the key answers.
fn check_strategy(stored: RedisResult<Value>, ours: &str) -> Result<(), OpenError> {
    let stored: Option<String> = match stored.and_then(|value| Ok(redis::from_redis_value(value)?))
    {
        Ok(stored) => stored,
        Err(error) => {
            tracing::debug!(target: "lockkit", %error, "the server does not tell which keys mutexes have");
            return Ok(());
        }
    };
    match stored {
        Some(theirs) if theirs != ours => Err(OpenError::Strategy(theirs)),
        _ => Ok(()),
    }
}

/// Warns of eviction, or refuses the server if strict: an evicted lock is a lost lock.
fn check_eviction(shared: &Shared, setting: RedisResult<Value>) -> Result<(), OpenError> {
    let settings: Vec<(String, String)> = match setting
        .and_then(|value| Ok(redis::from_redis_value(value)?))
    {
        Ok(settings) => settings,
        Err(error) => {
            tracing::debug!(target: "lockkit", %error, "the server does not tell its maxmemory-policy");
            return Ok(());
        }
    };
    let Some((_, policy)) = settings
        .into_iter()
        .find(|(name, policy)| name == "maxmemory-policy" && policy != "noeviction")
    else {
        return Ok(());
    };
    if shared.config.strict {
        return Err(OpenError::Evicts(policy));
    }
    if !shared.warned.swap(true, Ordering::Relaxed) {
        let reason = error::may_evict(&policy);
        tracing::warn!(target: "lockkit", backend = BACKEND, "{reason}");
    }
    Ok(())
}

fn knows_command(info: &Value) -> bool {
    matches!(info, Value::Array(commands) if commands.iter().any(|command| *command != Value::Nil))
}

/// Subscribes to our channel. False if the server does not allow it.
async fn subscribe(shared: &Shared, connection: &mut MultiplexedConnection) -> RedisResult<bool> {
    let mut subscribe = redis::cmd("SUBSCRIBE");
    subscribe.arg([&shared.config.channels(), shared.waiters.client()].concat());
    match connection.send_packed_command(&subscribe).await?.extract_error() {
        Ok(_) => Ok(true),
        Err(error) => {
            let error = error::from_redis(error, error::Phase::Read, &shared.config);
            tracing::warn!(target: "lockkit", %error, "the server refuses SUBSCRIBE: waiters only poll");
            Ok(false)
        }
    }
}
