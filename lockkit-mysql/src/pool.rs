//! The connections of a locker.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use deadpool::{
    Runtime,
    managed::{
        self, BuildError, Manager, Metrics, Object, PoolError, QueueMode, RecycleError, TimeoutType, Timeouts,
    },
};
use lockkit_core::{
    Clock, Error, ErrorKind, Result, Tick,
    spi::{Role, ServerClock},
};
use mysql_async::{self as my, Conn};
use tokio::time;

use crate::{
    config::Config,
    connection::{Connection, Killed},
    error::{self, Phase},
    reaper::Reaper,
    server::{self, Server, value},
    sql::{NOW, WRITABLE},
};

/// For `KILL`, and for tokens: what must not wait behind locks that are held. One for so many of the others.
const SIDE_SHARE: usize = 4;
const SIDE_CONNECTIONS: std::ops::RangeInclusive<usize> = 2..=16;
/// One that was idle for longer is asked first: firewalls forget, and servers close.
const TRUSTED: Duration = Duration::from_secs(15);
/// What a connection that was killed needs to go.
const DYING: Duration = Duration::from_millis(2);

/// All connections to the server.
#[derive(Debug)]
pub(crate) struct Pool {
    main: Channel,
    side: Channel,
    reaper: Arc<Reaper>,
    shared: Arc<Shared>,
}

/// What the connections share.
#[derive(Debug)]
struct Shared {
    config: Config,
    clock: OnceLock<ServerClock>,
    numbers: AtomicU64,
    /// When one was last found broken. Those that were idle then may be broken, too.
    doubted: AtomicU64,
    zero: Tick,
}

impl Pool {
    /// # Errors
    /// None that a checked configuration can cause.
    pub(crate) fn new(config: Config) -> Result<Self> {
        let size = config.pool_size;
        let (clock, zero) = (OnceLock::new(), Clock::Boot.now());
        let shared = Shared { config, clock, numbers: AtomicU64::new(1), doubted: AtomicU64::new(0), zero };
        let shared = Arc::new(shared);
        let side = (size / SIDE_SHARE).clamp(*SIDE_CONNECTIONS.start(), *SIDE_CONNECTIONS.end());
        let channel =
            |size, full| Channel::new(Arc::clone(&shared), size, full).map_err(|error| unusable(&error));
        let (main, side) = (channel(size, MAIN_FULL)?, channel(side, SIDE_FULL)?);
        let reaper = Arc::new(Reaper::new(side.clone()));
        Ok(Self { main, side, reaper, shared })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// A connection that nobody else uses, within `patience`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if all are in use for so long, or whatever opening a new one says.
    pub(crate) async fn get(&self, patience: Duration) -> Result<Checkout> {
        let mut connection = self.main.get(patience).await?;
        connection.reaper = Some(Arc::clone(&self.reaper));
        Ok(connection)
    }

    /// A connection for something short, also while all others hold locks.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(crate) async fn get_side(&self, patience: Duration) -> Result<Checkout> {
        self.side.get(patience).await
    }

    /// Translates what a connection of this pool said, and learns from it.
    ///
    /// # Errors
    /// The error of `answer`.
    pub(crate) fn checked<T>(&self, answer: Result<T, my::Error>, phase: Phase, what: &str) -> Result<T> {
        answer.map_err(|error| {
            let was_server = error::code(&error);
            let fatal = error::is_fatal(&error);
            let error = error::from_mysql(error, phase, what);
            // A demoted primary answers, and is of no use: the next connection may lead to the new one.
            if fatal || error.kind() == ErrorKind::ReadOnly {
                tracing::debug!(target: "lockkit", code = was_server, "a connection is in doubt");
                self.doubt();
            }
            error
        })
    }

    fn doubt(&self) {
        let now = self.shared.zero.until(Clock::Boot.now());
        self.shared.doubted.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The server's time at a local instant, in µs; not behind it.
    pub(crate) fn server_time(&self, at: Tick) -> u64 {
        let time = self.shared.clock.get().map_or(0, |clock| clock.at(at));
        u64::try_from(time).unwrap_or(0)
    }

    /// Learns from an answer that holds the server's time.
    pub(crate) fn observe(&self, sent: Tick, now_us: u64) {
        server::observe(&self.shared.clock, sent, now_us);
    }

    /// Ends a connection on the server, and waits until it has gone: nothing that was sent on it is applied after that.
    /// False if it is not known.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn end(&self, victim: &Server, patience: Duration) -> Result<bool> {
        let deadline = Clock::Boot.now().after(patience);
        let mut side = self.get_side(patience).await?;
        if !side.server().is_same_run(victim) {
            return Ok(side.server().is_later_run(victim));
        }
        while !Clock::Boot.now().until(deadline).is_zero() {
            if side.kill(victim.thread).await? == Killed::WasGone {
                return Ok(true);
            }
            time::sleep(DYING).await;
        }
        Ok(false)
    }

    /// Asks the server for its time, and learns from it.
    ///
    /// # Errors
    /// What the server says, or that it is no primary any more: a request that did nothing may have failed by that.
    pub(crate) async fn ask_time(&self, connection: &mut Connection) -> Result<u64> {
        let what = "asking for the time";
        let sent = Clock::Boot.now();
        let answer = connection.rows(&format!("SELECT {NOW},{WRITABLE}"), Vec::new()).await;
        let rows = self.checked(answer, Phase::Read, what)?;
        let read = || rows.first().and_then(|row| Some((value(row, 0)?, value::<bool>(row, 1)?)));
        let (now, is_primary) = read().ok_or_else(|| error::nonsense(what))?;
        if !is_primary {
            return self.checked(Err(connection.demoted()), Phase::Read, what);
        }
        self.observe(sent, now);
        Ok(now)
    }

    /// Asks a question of one row, also while all other connections hold locks. `None` if there is no row.
    ///
    /// # Errors
    /// What the server says, or that it is no primary any more: another one may know better.
    pub(crate) async fn ask_primary(&self, question: &str, what: &str) -> Result<Option<my::Row>> {
        let mut side = self.get_side(self.config().connect_timeout).await?;
        let answer = side.script(&format!("{};{question}", server::ROLE)).await;
        let steps = self.checked(answer, Phase::Read, what)?;
        match server::role(&steps) {
            Some(Role::Primary) => Ok(steps.into_iter().nth(1).and_then(|step| step.rows.into_iter().next())),
            Some(_) => {
                drop(side.give_up());
                self.doubt();
                let reason = format!(
                    "{what}: the server is not a primary, or was demoted; name the primary in the URL"
                );
                Err(error::ours(ErrorKind::ReadOnly, reason))
            }
            None => Err(error::nonsense(what)),
        }
    }

    /// Asks for a sign of life, also while all other connections hold locks.
    ///
    /// # Errors
    /// What the server says, or that it says nothing.
    pub(crate) async fn probe(&self) -> Result<Role> {
        let asked = async {
            let mut side = self.get_side(self.config().connect_timeout).await?;
            let answer = side.script(server::ROLE).await;
            let steps = self.checked(answer, Phase::Read, "asking for a sign of life")?;
            server::role(&steps).ok_or_else(|| error::nonsense("asking for a sign of life"))
        };
        match asked.await {
            // A connection to one that was a primary before this, is not opened at all.
            Err(error) if error.kind() == ErrorKind::ReadOnly => Ok(Role::Replica),
            answer => answer,
        }
    }

    /// Ends all connections, after what is being killed.
    pub(crate) async fn close(&self) {
        self.reaper.finish().await;
        for channel in [&self.main, &self.side] {
            channel.pool.close();
            for connection in channel.pool.retain(|_, _| false).removed {
                let _ = time::timeout(self.config().connect_timeout, connection.disconnect()).await;
            }
        }
    }
}

const MAIN_FULL: &str = "with strategy=pessimistic each lock that is held takes one, and so does the first waiter of each name; \
                         raise pool_size";
const SIDE_FULL: &str = "they are for tokens and for ending statements, so the server is slow to answer; raise op_timeout, or \
                         pool_size, of which they are a quarter";

/// A number of connections, made when they are needed.
#[derive(Clone)]
pub(crate) struct Channel {
    pool: managed::Pool<Maker>,
    /// What to say when all are in use.
    full: &'static str,
}

impl Channel {
    fn new(shared: Arc<Shared>, size: usize, full: &'static str) -> Result<Self, BuildError> {
        let pool = managed::Pool::builder(Maker(shared)).max_size(size).runtime(Runtime::Tokio1);
        // The one used last is the warmest, and the others may rest.
        Ok(Self { pool: pool.queue_mode(QueueMode::Lifo).build()?, full })
    }

    /// # Errors
    /// As for [`Pool::get`].
    pub(crate) async fn get(&self, patience: Duration) -> Result<Checkout> {
        let config = &self.pool.manager().0.config;
        let timeout = config.connect_timeout;
        let timeouts = Timeouts { wait: Some(patience), create: Some(timeout), recycle: Some(timeout) };
        let object = self
            .pool
            .timeout_get(&timeouts)
            .await
            .map_err(|error| refused(error, config, self.pool.status().max_size, self.full))?;
        Ok(Checkout { object, reaper: None })
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Channel").field(&self.pool.status()).finish()
    }
}

/// Opens connections, and tells whether they can be used again.
#[derive(Debug)]
struct Maker(Arc<Shared>);

impl Manager for Maker {
    type Type = Connection;
    type Error = Error;

    async fn create(&self) -> Result<Connection> {
        let Shared { config, clock, numbers, .. } = &*self.0;
        let what = || format!("connecting to {}", config.address());
        let conn = Conn::new(config.opts()).await;
        let conn = conn.map_err(|error| error::opening(error, &what(), config.secret()))?;
        server::introduce(conn, numbers.fetch_add(1, Relaxed), config.strategy, clock).await
    }

    async fn recycle(&self, connection: &mut Connection, _: &Metrics) -> managed::RecycleResult<Error> {
        if !connection.is_clean() || !connection.is_of_this_runtime() {
            connection.give_up();
            return Err(RecycleError::message("it is of no use here"));
        }
        let doubted = self.0.zero.after(Duration::from_nanos(self.0.doubted.load(Relaxed)));
        // Long before the server ends it by itself.
        let trusted = TRUSTED.min(Duration::from_secs(connection.session().idle_s) / 4);
        let rested = connection.used().until(Clock::Boot.now()) > trusted;
        if (rested || connection.used() <= doubted) && connection.ping().await.is_err() {
            connection.give_up();
            return Err(RecycleError::message("the server has closed it"));
        }
        Ok(())
    }
}

/// A connection of the pool, in one task's hands. It goes back if it is clean; else it is closed, and what may still run
/// on it is killed.
#[derive(Debug)]
pub(crate) struct Checkout {
    object: Object<Maker>,
    reaper: Option<Arc<Reaper>>,
}

impl Deref for Checkout {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.object
    }
}

impl DerefMut for Checkout {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.object
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        if self.object.is_clean() {
            return;
        }
        // What goes back to the pool is an empty shell, which the next one who asks throws away.
        if let Some(corpse) = self.object.give_up()
            && corpse.is_in_flight
            && let Some(reaper) = &self.reaper
        {
            reaper.bury(corpse);
        }
    }
}

fn refused(error: PoolError<Error>, config: &Config, size: usize, full: &str) -> Error {
    let reason = match error {
        PoolError::Backend(error) => return error,
        PoolError::Timeout(TimeoutType::Wait) => {
            format!("all {size} connections of the pool are in use; {full}")
        }
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
            format!(
                "{} did not answer within connect_timeout ({:?})",
                config.address(),
                config.connect_timeout
            )
        }
        PoolError::Closed => return error::ours(ErrorKind::Closed, "the locker was shut down"),
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            return unusable(&"it has no runtime");
        }
    };
    error::ours(ErrorKind::Unavailable, reason)
}

fn unusable(error: &dyn fmt::Display) -> Error {
    error::ours(ErrorKind::Unexpected, format!("the pool of connections can't be made: {error}"))
}
