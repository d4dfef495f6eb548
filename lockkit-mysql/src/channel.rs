//! A number of connections, made when they are needed, and kept for the next use in the same
//! runtime.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use lockkit_core::{Clock, Error, ErrorKind, Result, Tick, spi::ServerClock};
use mysql_async::{self as my, Conn};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    config::Config,
    connection::{Connection, GivenUp},
    error, handshake,
};

/// One that was idle for longer is asked first: firewalls forget, and servers close.
const TRUSTED: Duration = Duration::from_secs(15);

/// What the connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: OnceLock<ServerClock>,
    pub(crate) numbers: AtomicU64,
    /// When one was last found broken. Those that were idle then may be broken, too.
    pub(crate) suspect_since: AtomicU64,
    pub(crate) zero: Tick,
}

impl Shared {
    async fn open(&self) -> Result<Connection> {
        let Self { config, clock, numbers, .. } = self;
        let what = || format!("connecting to {}", config.address());
        let conn = Conn::new(config.opts()).await;
        let conn = conn.map_err(|error| error::opening(error, &what(), config.secret()))?;
        handshake::introduce(conn, numbers.fetch_add(1, Relaxed), config.strategy, clock).await
    }

    /// Asks an idle connection whether the server is still there, if that is not certain.
    ///
    /// # Errors
    /// It is of no use any more.
    async fn refresh(&self, connection: &mut Connection) -> Result<(), my::Error> {
        let suspect_since = self.zero.after(Duration::from_nanos(self.suspect_since.load(Relaxed)));
        // Long before the server ends it by itself.
        let trusted = TRUSTED.min(Duration::from_secs(connection.session().idle_s) / 4);
        let rested = connection.used().until(Clock::Boot.now()) > trusted;
        if rested || connection.used() <= suspect_since { connection.ping().await } else { Ok(()) }
    }
}

/// So many connections at most, in use and idle.
///
/// The socket of a connection is driven by the runtime that opened it. So an idle connection is
/// used again only in that runtime. It is closed when its runtime has ended, or when another
/// runtime needs one and the channel is full.
#[derive(Clone)]
pub(crate) struct Channel(Arc<Slots>);

struct Slots {
    shared: Arc<Shared>,
    size: usize,
    /// What to say when all are in use.
    full: &'static str,
    /// One for each connection in use. Closed with the locker.
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_use: usize,
    /// In the order of their last use. The last one is the warmest, and the others may rest.
    idle: Vec<Connection>,
}

impl Channel {
    pub(crate) fn new(shared: Arc<Shared>, size: usize, full: &'static str) -> Self {
        let permits = Arc::new(Semaphore::new(size));
        Self(Arc::new(Slots { shared, size, full, permits, state: Mutex::default() }))
    }

    /// A connection that nobody else uses, within `patience`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if all are in use for so long, or whatever opening a new one
    /// says.
    pub(crate) async fn get(&self, patience: Duration) -> Result<Checkout> {
        let slots = &self.0;
        let permit = timeout(patience, Arc::clone(&slots.permits).acquire_owned()).await;
        let permit = permit.map_err(|_| slots.exhausted())?.map_err(|_| closed())?;
        slots.lock().in_use += 1;
        let connection = Connection::none();
        let mut checkout =
            Checkout { connection, slots: Arc::clone(slots), on_drop: None, _permit: permit };
        let shared = &slots.shared;
        let limit = shared.config.connect_timeout;
        while let Some(connection) = slots.take_idle() {
            checkout.connection = connection;
            match timeout(limit, shared.refresh(&mut checkout.connection)).await {
                Ok(Ok(())) => return Ok(checkout),
                // The server has closed it.
                Ok(Err(_)) => drop(checkout.connection.give_up()),
                // The network may have forgotten all that are idle: to ask each of them would take
                // too long.
                Err(_) => {
                    drop(checkout.connection.give_up());
                    break;
                }
            }
        }
        checkout.connection = timeout(limit, shared.open()).await.map_err(|_| slots.silent())??;
        Ok(checkout)
    }

    /// Gives out none any more. Returns those that are idle.
    pub(crate) fn close(&self) -> Vec<Connection> {
        self.0.permits.close();
        std::mem::take(&mut self.0.lock().idle)
    }
}

impl Slots {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An idle connection of this runtime. If there is none, there is room for a new one after
    /// this.
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
        let reason =
            format!("{} did not answer within connect_timeout ({limit:?})", config.address());
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

/// A connection of a channel, in one task's hands. It goes back if it is clean; else it is closed,
/// and what may still run on it is killed.
pub(crate) struct Checkout {
    connection: Connection,
    slots: Arc<Slots>,
    on_drop: Option<Arc<dyn DropHandler>>,
    /// Given back last: whoever waits for it finds the connection.
    _permit: OwnedSemaphorePermit,
}

impl Checkout {
    /// Sets the handler that ends on the server what is dropped midway here.
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
        // In one step, so that nobody counts the connection twice.
        state.in_use -= 1;
        // Looked at under the lock: a connection that comes after the end would stay for ever.
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

    /// A way to the server that forgets the connections of before, and serves those of after.
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

    /// Catches a pool that tells its user of an idle connection that nobody answers on, where a new
    /// one would do.
    #[tokio::test]
    async fn c8_an_idle_connection_that_was_forgotten_is_replaced() {
        let server = SqlServer::start(SqlFlavor::MariaDb).unwrap();
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
        let (addr, age) = forgetful(here).await;
        let url = server.url().replace(&here.to_string(), &addr.to_string());
        // After so long, the connection that was forgotten is given up. A server that stands still
        // is slower to open another.
        let url = format!("{url}?connect_timeout=9s");
        let pool = Pool::new(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap());
        let patience = Duration::from_secs(60);
        let first = pool.get(patience).await.unwrap().server().thread;
        age.send_modify(|age| *age += 1);
        // As after a quarter of a minute.
        pool.mark_suspect();
        let mut second = pool.get(patience).await.unwrap();
        assert_ne!(second.server().thread, first);
        second.ping().await.unwrap();
    }
}
