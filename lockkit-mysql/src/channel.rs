//! Keeps a limited number of connections. It opens them when they are needed, and keeps them for
//! the next use in the same runtime.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::try_join_all;
use lockkit_core::{Clock, Error, ErrorKind, Result, Tick, spi::ServerClock};
use mysql_async as my;
use tokio::{
    runtime::{Handle, Id},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    config::Config,
    connection::{Connection, GivenUp},
    error, handshake,
};

/// A connection that was idle for longer is pinged before its use, because firewalls forget
/// connections and servers close them.
const TRUSTED: Duration = Duration::from_secs(15);

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: OnceLock<ServerClock>,
    pub(crate) numbers: AtomicU64,
    /// When a connection was last found broken, in nanoseconds after `zero`. All connections that
    /// were idle then may be broken, too.
    pub(crate) suspect_since: AtomicU64,
    pub(crate) zero: Tick,
    /// The runtime that uses the program's pool.
    pub(crate) pool_runtime: OnceLock<Id>,
}

impl Shared {
    async fn open(&self) -> Result<Connection> {
        let Self { config, clock, numbers, .. } = self;
        let conn = config.open().await?;
        handshake::introduce(conn, numbers.fetch_add(1, Relaxed), config.strategy, clock).await
    }

    /// A pool of the program gives out sockets without regard to the runtime that drives them.
    fn check_runtime(&self) -> Result<()> {
        if !self.config.is_own_pool() {
            return Ok(());
        }
        let here = Handle::current().id();
        if *self.pool_runtime.get_or_init(|| here) == here {
            return Ok(());
        }
        let reason = "the program's pool serves only the tokio runtime in which lockkit connected; \
                      make a pool and a locker for each runtime";
        Err(error::ours(ErrorKind::Unsupported, reason))
    }

    /// Pings an idle connection if it may be broken.
    ///
    /// # Errors
    /// The connection can't be used any more.
    async fn refresh(&self, connection: &mut Connection) -> Result<(), my::Error> {
        let suspect_since = self.zero.after(Duration::from_nanos(self.suspect_since.load(Relaxed)));
        // A quarter of the time after which the server ends an idle connection.
        let trusted = TRUSTED.min(Duration::from_secs(connection.session().idle_s) / 4);
        let rested = connection.used().until(Clock::Boot.now()) > trusted;
        if rested || connection.used() <= suspect_since { connection.ping().await } else { Ok(()) }
    }
}

/// A limited number of connections, in use and idle.
///
/// The runtime that opened a connection drives its socket. So an idle connection is used again only
/// in that runtime. It is closed when its runtime has ended, or when another runtime needs a
/// connection and the channel is full.
#[derive(Clone)]
pub(crate) struct Channel(Arc<Slots>);

struct Slots {
    shared: Arc<Shared>,
    size: usize,
    /// The advice for the error when all connections are in use.
    full: &'static str,
    /// One permit for each connection in use. Closed with the locker.
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_use: usize,
    /// In the order of their last use. The most recent one of a runtime is used first, so that the
    /// others may rest.
    idle: Vec<Connection>,
}

impl Channel {
    pub(crate) fn new(shared: Arc<Shared>, size: usize, full: &'static str) -> Self {
        let permits = Arc::new(Semaphore::new(size));
        Self(Arc::new(Slots { shared, size, full, permits, state: Mutex::default() }))
    }

    /// A connection for this caller alone, within `patience`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if all connections are in use for so long, or the error of
    /// opening a new connection.
    pub(crate) async fn get(&self, patience: Duration) -> Result<Checkout> {
        self.get_if_free(patience).await?.ok_or_else(|| self.0.exhausted())
    }

    /// As [`get`](Self::get), but `None` if all connections are in use for so long.
    ///
    /// # Errors
    /// The error of opening a new connection.
    pub(crate) async fn get_if_free(&self, patience: Duration) -> Result<Option<Checkout>> {
        let slots = &self.0;
        slots.shared.check_runtime()?;
        let permit = timeout(patience, Arc::clone(&slots.permits).acquire_owned()).await;
        let Ok(permit) = permit else { return Ok(None) };
        let permit = permit.map_err(|_| closed())?;
        slots.lock().in_use += 1;
        let connection = Connection::none();
        let mut checkout =
            Checkout { connection, slots: Arc::clone(slots), on_drop: None, _permit: permit };
        let shared = &slots.shared;
        let limit = shared.config.connect_timeout;
        while let Some(connection) = slots.take_idle() {
            checkout.connection = connection;
            match timeout(limit, shared.refresh(&mut checkout.connection)).await {
                Ok(Ok(())) => return Ok(Some(checkout)),
                // The server has closed the connection.
                Ok(Err(_)) => drop(checkout.connection.give_up()),
                // The network may have forgotten all idle connections, and to ping each of them
                // would take too long.
                Err(_) => {
                    drop(checkout.connection.give_up());
                    break;
                }
            }
        }
        checkout.connection = timeout(limit, shared.open()).await.map_err(|_| slots.silent())??;
        Ok(Some(checkout))
    }

    /// Opens all connections that there may be, for later use.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(crate) async fn fill(&self, patience: Duration) -> Result<()> {
        try_join_all((0..self.0.size).map(|_| self.get(patience))).await.map(drop)
    }

    /// How many connections tasks have at present.
    pub(crate) fn in_use(&self) -> usize {
        self.0.lock().in_use
    }

    /// Gives out no more connections, and returns the idle ones.
    pub(crate) fn close(&self) -> Vec<Connection> {
        self.0.permits.close();
        std::mem::take(&mut self.0.lock().idle)
    }
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection of this runtime. If there is none, the channel has room for a new one
    /// after this.
    fn take_idle(&self) -> Option<Connection> {
        let runtime = Handle::try_current().ok()?.id();
        let mut state = self.lock();
        state.idle.retain(|connection| !connection.has_lost_its_runtime());
        if let Some(index) = state.idle.iter().rposition(|connection| connection.is_of(runtime)) {
            return Some(state.idle.remove(index));
        }
        let is_over_full = state.in_use + state.idle.len() > self.size;
        let oldest = is_over_full.then(|| state.idle.remove(0));
        drop(state);
        drop(oldest);
        None
    }

    fn exhausted(&self) -> Error {
        let Self { size, full, .. } = self;
        error::ours(
            ErrorKind::Unavailable,
            format!("all {size} connections of the pool are in use; {full}"),
        )
    }

    fn silent(&self) -> Error {
        let config = &self.shared.config;
        let limit = config.connect_timeout;
        let address = config.address();
        let reason = if config.is_own_pool() {
            format!(
                "{address} gave no connection within connect_timeout ({limit:?}); does the program \
                 use all of them, or is the server unreachable?"
            )
        } else {
            format!(
                "{address} did not answer within connect_timeout ({limit:?}); is the server \
                 running and reachable?"
            )
        };
        error::ours(ErrorKind::Unavailable, reason)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Channel")
            .field("size", &self.0.size)
            .field("in_use", &state.in_use)
            .field("idle", &state.idle.len())
            .finish()
    }
}

/// Takes care of a connection that was dropped while the server worked for it.
pub(crate) trait DropHandler: Send + Sync {
    fn dropped(&self, given_up: GivenUp);
}

/// A connection of a channel that one task uses. A clean connection goes back to the channel on
/// drop. Any other is closed, and the drop handler kills the statement that may still run on it.
pub(crate) struct Checkout {
    connection: Connection,
    slots: Arc<Slots>,
    on_drop: Option<Arc<dyn DropHandler>>,
    /// Dropped last, so that a task that waits for the permit finds the connection.
    _permit: OwnedSemaphorePermit,
}

impl Checkout {
    /// Sets the handler that ends a statement on the server when its call is dropped midway.
    pub(crate) fn with_drop_handler(mut self, on_drop: Arc<dyn DropHandler>) -> Self {
        self.on_drop = Some(on_drop);
        self
    }
}

impl Deref for Checkout {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Checkout {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let is_clean = self.connection.is_clean();
        let spare = is_clean.then(|| std::mem::replace(&mut self.connection, Connection::none()));
        let mut state = self.slots.lock();
        // Both changes happen under one lock, so that no task counts the connection twice.
        state.in_use -= 1;
        // Checked under the lock, because a connection that comes back after the close would stay
        // open for ever.
        if !self.slots.permits.is_closed() {
            state.idle.extend(spare);
        }
        drop(state);
        if let Some(given_up) = self.connection.give_up()
            && given_up.is_in_flight
            && let Some(on_drop) = &self.on_drop
        {
            on_drop.dropped(given_up);
        }
    }
}

impl fmt::Debug for Checkout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Checkout").field(&self.connection).finish()
    }
}

fn closed() -> Error {
    error::ours(ErrorKind::Closed, "the locker was shut down")
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use lockkit_core::url::StoreUrl;
    use lockkit_fixture::{SqlFlavor, SqlServer};
    use tokio::{
        io::copy_bidirectional,
        net::{TcpListener, TcpStream},
        sync::watch,
    };

    use super::*;
    use crate::pool::Pool;

    /// A proxy to the server. When its age changes, it forgets its older connections and serves
    /// only new ones.
    async fn forgetful(server: SocketAddr) -> (SocketAddr, watch::Sender<u64>) {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let addr = socket.local_addr().unwrap();
        let (age, _) = watch::channel(0);
        let ages = age.clone();
        #[expect(clippy::disallowed_methods, reason = "a test's own")]
        tokio::spawn(async move {
            while let Ok((mut client, _)) = socket.accept().await {
                let mut now = ages.subscribe();
                now.mark_unchanged();
                #[expect(clippy::disallowed_methods, reason = "a test's own")]
                tokio::spawn(async move {
                    let mut there = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut there) => {}
                        _ = now.changed() => std::future::pending().await,
                    }
                });
            }
        });
        (addr, age)
    }

    /// Catches a pool that returns the error of a forgotten idle connection, although a new
    /// connection would work.
    #[tokio::test]
    async fn c8_an_idle_connection_that_was_forgotten_is_replaced() {
        let server = SqlServer::start(SqlFlavor::MariaDb).unwrap();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let (addr, age) = forgetful(here).await;
        let url = server.url().replace(&here.to_string(), &addr.to_string());
        // The pool gives up the forgotten connection after this time. The time is long because a
        // stalled server is slow to open a new connection.
        let url = format!("{url}?connect_timeout=9s");
        let pool = Pool::new(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap());
        let patience = Duration::from_secs(60);
        let first = pool.get(patience).await.unwrap().server().thread;
        age.send_modify(|age| *age += 1);
        // Has the same effect as an idle time of a quarter of a minute.
        pool.mark_suspect();
        let mut second = pool.get(patience).await.unwrap();
        assert_ne!(second.server().thread, first);
        second.ping().await.unwrap();
    }
}
