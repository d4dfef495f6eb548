//! Asks the servers for a session, and reports why there is none.

use std::{panic::catch_unwind, sync::Arc, time::Duration};

use async_net::TcpStream;
use futures_util::future::{join, join_all, pending};
use lockkit_core::{Clock, Error, ErrorKind, Kind, Result};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};
use zookeeper_client::{Client, CreateMode, Error as ZkError, SessionState};

use super::{
    Session, Shared, actor,
    beat::{HeartbeatRequest, NodeRemoval},
};
use crate::{
    config::{Config, Heartbeat, address},
    error::{self, Phase, from_zk},
    folder,
};

/// The client would try for a whole session timeout. An election takes a second or two.
const PATIENCE: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(2)..=Duration::from_secs(5);
/// The time to find the fault of a server. A session is usually opened faster.
const KNOCK: Duration = Duration::from_millis(500);

/// Opens a session, and starts its actor on the present runtime.
///
/// # Errors
/// The reason why there is no session, for each server.
pub(super) async fn open(config: &Config) -> Result<Session> {
    let Ok(runtime) = Handle::try_current() else {
        return Err(error::ours(
            ErrorKind::NoRuntime,
            "could not open a session outside of a tokio runtime; call lockkit inside one",
        ));
    };
    if !has_timers() {
        let reason = "the tokio runtime here has no timers; build the runtime with `enable_time` \
                      or `enable_all`";
        return Err(error::ours(ErrorKind::NoRuntime, reason));
    }
    let connecting = Clock::Boot.now();
    let client = client(config).await?;
    let borrowed = config.client().is_some();
    let heartbeat = heartbeat(config);
    let removal = borrowed.then(|| NodeRemoval::of(&heartbeat, &client)).flatten();
    // Both requests are polled in this order, and queued before either is awaited.
    let (checked, made) =
        join(folder::check_strategy(&client, config, Kind::Mutex), make_node(&client, &heartbeat))
            .await;
    checked?;
    made?;
    let shared = Arc::new(Shared::new(client.session_timeout(), connecting, borrowed));
    let id = client.session_id().0;
    let timeout = client.session_timeout();
    let client = Arc::new(client);
    let actor =
        actor::run(Arc::clone(&shared), Arc::clone(&client), heartbeat, connecting, removal);
    #[expect(
        clippy::disallowed_methods,
        reason = "a session has one task of its own, for all of its claims"
    )]
    runtime.spawn(actor);
    let client = Some(client).into();
    let watched_bytes = 0.into();
    let node_bytes = 0.into();
    let chroot_bytes = config.chroot().map_or(0, str::len);
    let batches = Arc::new(super::NodeBatches::new());
    Ok(Session { client, id, timeout, watched_bytes, node_bytes, chroot_bytes, batches, shared })
}

/// Opens a session without its actor, or uses that of the program's client.
///
/// # Errors
/// The reason why there is no session, for each server.
pub(crate) async fn client(config: &Config) -> Result<Client> {
    let client = match config.client() {
        Some(client) => adopt(client, config).await?,
        None => connect(config).await?,
    };
    check_chroot(&client, config).await?;
    Ok(client)
}

/// tokio shows this only by a panic.
fn has_timers() -> bool {
    catch_unwind(|| drop(sleep(Duration::ZERO))).is_ok()
}

/// Waits until the client of the program is connected.
async fn adopt(client: &Client, config: &Config) -> Result<Client> {
    let mut state = client.state_watcher();
    let patience = patience(config);
    let connected = async {
        loop {
            match state.peek_state() {
                // A client that began at such a server gets another session later, unseen.
                SessionState::SyncConnected if client.session().is_readonly() => {
                    return Err(read_only());
                }
                SessionState::SyncConnected => return Ok(client.clone()),
                SessionState::ConnectedReadOnly => return Err(read_only()),
                SessionState::Disconnected => {}
                ended @ (SessionState::AuthFailed
                | SessionState::Expired
                | SessionState::Closed) => {
                    let reason = format!(
                        "the session of the program's client has ended ({ended}); make a new \
                         client and a new locker"
                    );
                    return Err(error::ours(ErrorKind::Closed, reason));
                }
            }
            state.changed().await;
        }
    };
    match timeout(patience, connected).await {
        Ok(adopted) => adopted,
        Err(_) => {
            let reason = format!(
                "the program's client did not connect within {patience:?}; are the servers running \
                 and reachable?"
            );
            Err(error::ours(ErrorKind::Unavailable, reason))
        }
    }
}

fn read_only() -> Error {
    let reason = "the program's client is connected to a read-only server, which takes no locks; \
                  connect without with_readonly, and make a new locker";
    error::ours(ErrorKind::ReadOnly, reason)
}

fn patience(config: &Config) -> Duration {
    config.session_timeout.clamp(*PATIENCE.start(), *PATIENCE.end())
}

async fn connect(config: &Config) -> Result<Client> {
    let mut connector = Client::connector()
        .with_session_timeout(config.session_timeout)
        .with_connection_timeout(config.connect_timeout());
    if let Some(digest) = config.digest() {
        connector = connector.with_auth("digest", digest.as_bytes());
    }
    #[cfg(feature = "tls")]
    if let Some(tls) = &config.tls {
        connector = connector.with_tls(tls.options()?);
    }
    let cluster = config.connect_string();
    let patience = patience(config);
    #[cfg(feature = "tls")]
    let connecting = {
        let secure = config.tls.is_some();
        async move {
            if secure {
                connector.secure_connect(&cluster).await
            } else {
                connector.connect(&cluster).await
            }
        }
    };
    #[cfg(not(feature = "tls"))]
    let connecting = async move { connector.connect(&cluster).await };
    let answer = tokio::select! {
        biased;
        answer = timeout(patience, connecting) => answer,
        error = unreachable_at_all(config) => return Err(error),
    };
    match answer {
        Ok(Ok(client)) => Ok(client),
        Ok(Err(error @ (ZkError::AuthFailed | ZkError::BadArguments(_)))) => {
            Err(from_zk(error, Phase::Read, "opening a session at", &config.connect_string()))
        }
        Ok(Err(error)) => Err(unreachable(config, &error.to_string()).await),
        Err(_) => {
            Err(unreachable(config, &format!("no server granted one within {patience:?}")).await)
        }
    }
}

/// Asks each server once more for its fault, because the client only reports that it failed.
async fn unreachable(config: &Config, said: &str) -> Error {
    let found = join_all(config.servers().iter().map(async |server| {
        let found = match knock(server, KNOCK).await {
            Ok(()) => format!("accepts connections, but grants no session: {}", suspicion(config)),
            Err(why) => why,
        };
        format!("{}: {found}", address(&server.0, server.1))
    }));
    no_session(said, &found.await)
}

/// Completes if no server takes connections, because it is then useless to wait for an election.
/// Asks only if there is no session soon.
async fn unreachable_at_all(config: &Config) -> Error {
    sleep(KNOCK).await;
    let found = join_all(config.servers().iter().map(async |server| {
        let refused = knock(server, config.connect_timeout()).await.err()?;
        Some(format!("{}: {refused}", address(&server.0, server.1)))
    }));
    match found.await.into_iter().collect::<Option<Vec<_>>>() {
        Some(found) => no_session("no server accepts connections", &found),
        None => pending().await,
    }
}

/// Returns the reason why a server takes no connection.
async fn knock((host, port): &(String, u16), patience: Duration) -> Result<(), String> {
    match timeout(patience, TcpStream::connect((host.as_str(), *port))).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("no answer".to_owned()),
    }
}

fn no_session(said: &str, found: &[String]) -> Error {
    let reason = format!(
        "could not open a session with the ZooKeeper servers ({said}). {}",
        found.join("; ")
    );
    error::ours(ErrorKind::Unavailable, reason)
}

/// Guesses the fault, because the client does not report why a TLS handshake failed.
fn suspicion(config: &Config) -> &'static str {
    #[cfg(feature = "tls")]
    if config.tls.is_some() {
        return "perhaps its certificate is not signed by the parameter ca or does not name this \
                host, it requires a client certificate (cert and key), it has no quorum, or this \
                is not ZooKeeper's secureClientPort";
    }
    let _ = config;
    "perhaps it has no quorum, or this is not ZooKeeper's client port"
}

/// Checks that the chroot exists. lockkit never makes it, because a typing error would separate
/// clients that must exclude each other.
async fn check_chroot(client: &Client, config: &Config) -> Result<()> {
    let Some(chroot) = config.chroot() else { return Ok(()) };
    match client.check_stat("/").await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            let reason = format!(
                "the chroot {chroot:?} does not exist; create the node, or name another one"
            );
            Err(error::ours(ErrorKind::InvalidUrl, reason))
        }
        Err(error) => Err(from_zk(error, Phase::Read, "looking for the chroot", chroot)),
    }
}

fn heartbeat(config: &Config) -> HeartbeatRequest {
    if config.heartbeat == Heartbeat::Sync {
        return HeartbeatRequest::Sync;
    }
    let folder = config.layout().sessions();
    let path = format!("{folder}/{:032x}", rand::random::<u128>());
    HeartbeatRequest::Write { folder, path, acl: config.acl }
}

/// Makes the node that the session's heartbeats write to, unless the heartbeats are reads.
async fn make_node(client: &Client, heartbeat: &HeartbeatRequest) -> Result<()> {
    let HeartbeatRequest::Write { folder, path, acl } = heartbeat else { return Ok(()) };
    let ephemeral = CreateMode::Ephemeral.with_acls(acl.acls());
    let mut made = client.create(path, b"", &ephemeral).await;
    if matches!(made, Err(ZkError::NoNode)) {
        folder::make(client, folder, *acl).await?;
        made = client.create(path, b"", &ephemeral).await;
    }
    match made {
        Ok(_) => Ok(()),
        Err(error) => Err(from_zk(error, Phase::Write, "creating", path)),
    }
}
