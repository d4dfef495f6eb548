//! Has all connections of a locker, and the requests that any of them can make.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use lockkit_core::{Clock, ErrorKind, Result, Tick, spi::Role};
use mysql_async as my;
use tokio::time;

use crate::{
    channel::{Channel, Checkout, Shared},
    config::Config,
    connection::{Connection, Killed},
    error::{self, Phase},
    handshake::{self, value},
    server::Server,
    sql::{NOW, WRITABLE},
    statement_killer::StatementKiller,
};

/// How long a killed connection needs to end.
const DYING: Duration = Duration::from_millis(2);

/// All connections to the server.
#[derive(Debug)]
pub(crate) struct Pool {
    main: Channel,
    side: Channel,
    statement_killer: Arc<StatementKiller>,
    shared: Arc<Shared>,
}

impl Pool {
    pub(crate) fn new(config: Config) -> Self {
        let size = config.pool_size;
        let side = config.side_connections();
        let connect_timeout = config.connect_timeout;
        let clock = OnceLock::new();
        let zero = Clock::Boot.now();
        let shared = Shared {
            config,
            clock,
            numbers: AtomicU64::new(1),
            suspect_since: AtomicU64::new(0),
            zero,
            pool_runtime: OnceLock::new(),
        };
        let shared = Arc::new(shared);
        let main = Channel::new(Arc::clone(&shared), size, MAIN_FULL);
        let side = Channel::new(Arc::clone(&shared), side, SIDE_FULL);
        let statement_killer = Arc::new(StatementKiller::new(side.clone(), connect_timeout));
        Self { main, side, statement_killer, shared }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.shared.config
    }

    /// Opens all connections that there may be. A connection of the program's pool is not free for
    /// lockkit later, while tasks that have one wait for a lock.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(crate) async fn fill(&self) -> Result<()> {
        let patience = self.config().connect_timeout;
        self.main.fill(patience).await?;
        self.side.fill(patience).await
    }

    /// A connection for this caller alone, within `patience`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if all connections are in use for so long, or the error of
    /// opening a new connection.
    pub(crate) async fn get(&self, patience: Duration) -> Result<Checkout> {
        let connection = self.main.get(patience).await?;
        Ok(self.with_killer(connection))
    }

    /// As [`get`](Self::get), but `None` if all connections are in use for so long.
    ///
    /// # Errors
    /// The error of opening a new connection.
    pub(crate) async fn get_if_free(&self, patience: Duration) -> Result<Option<Checkout>> {
        let connection = self.main.get_if_free(patience).await?;
        Ok(connection.map(|connection| self.with_killer(connection)))
    }

    fn with_killer(&self, connection: Checkout) -> Checkout {
        let statement_killer = Arc::clone(&self.statement_killer);
        connection.with_drop_handler(statement_killer)
    }

    /// How many connections are in use, without those of [`get_side`](Self::get_side).
    pub(crate) fn in_use(&self) -> usize {
        self.main.in_use()
    }

    /// A connection for a short request, available also while all others hold locks.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub(crate) async fn get_side(&self, patience: Duration) -> Result<Checkout> {
        self.side.get(patience).await
    }

    /// Translates the answer of a connection of this pool. After a fatal error, all idle
    /// connections are suspect.
    ///
    /// # Errors
    /// The error of `answer`.
    pub(crate) fn checked<T>(
        &self,
        answer: Result<T, my::Error>,
        phase: Phase,
        what: &str,
    ) -> Result<T> {
        answer.map_err(|error| {
            let was_server = error::code(&error);
            let fatal = error::is_fatal(&error);
            let error = error::from_mysql(error, phase, what);
            // A demoted primary answers, but can't be used. The next connection may lead to the new
            // primary.
            if fatal || error.kind() == ErrorKind::ReadOnly {
                tracing::debug!(target: "lockkit", code = was_server, "lockkit closes a connection \
                                                                       in an unknown state");
                self.mark_suspect();
            }
            error
        })
    }

    pub(crate) fn mark_suspect(&self) {
        let now = self.shared.zero.until(Clock::Boot.now());
        self.shared.suspect_since.store(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The server's time at a local instant, in µs. The estimate is not behind the server's clock.
    pub(crate) fn server_time(&self, at: Tick) -> u64 {
        let time = self.shared.clock.get().map_or(0, |clock| clock.at(at));
        u64::try_from(time).unwrap_or(0)
    }

    /// Learns the server's time from an answer that holds it.
    pub(crate) fn observe(&self, sent: Tick, now_us: u64) {
        handshake::observe(&self.shared.clock, sent, now_us);
    }

    /// Ends a connection on the server, and waits until it is gone. After that, the server applies
    /// nothing that was sent on it. Returns false if the end is not known.
    ///
    /// # Errors
    /// Returns the server's error.
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

    /// Ends a connection of the program in the background, if it has this user-level lock.
    pub(crate) fn end_owner(&self, lock: String, thread: u64) {
        self.statement_killer.end_owner(lock, thread);
    }

    /// Asks the server for its time, and remembers the answer.
    ///
    /// # Errors
    /// Returns the server's error, or an error if the server is no primary any more. That may be
    /// why a request did nothing.
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

    /// Asks the primary for one row, also while all other connections hold locks. `None` if there
    /// is no row.
    ///
    /// # Errors
    /// Returns the server's error, or an error if the server is no primary any more. Then another
    /// server may know the answer.
    pub(crate) async fn ask_primary(&self, question: &str, what: &str) -> Result<Option<my::Row>> {
        let mut side = self.get_side(self.config().connect_timeout).await?;
        let answer = side.script(&format!("{};{question}", handshake::ROLE)).await;
        let steps = self.checked(answer, Phase::Read, what)?;
        match handshake::role(&steps) {
            Some(Role::Primary) => {
                Ok(steps.into_iter().nth(1).and_then(|step| step.rows.into_iter().next()))
            }
            Some(_) => {
                drop(side.give_up());
                self.mark_suspect();
                let reason = format!(
                    "{what} failed: the server is not a primary, or was demoted; name the primary \
                     in the URL"
                );
                Err(error::ours(ErrorKind::ReadOnly, reason))
            }
            None => Err(error::nonsense(what)),
        }
    }

    /// Asks the server for its role as a sign of life, also while all other connections hold locks.
    ///
    /// # Errors
    /// Returns the server's error, or an error if the server does not answer.
    pub(crate) async fn probe(&self) -> Result<Role> {
        let asked = async {
            let mut side = self.get_side(self.config().connect_timeout).await?;
            let answer = side.script(handshake::ROLE).await;
            let steps = self.checked(answer, Phase::Read, "checking the connection")?;
            handshake::role(&steps).ok_or_else(|| error::nonsense("checking the connection"))
        };
        match asked.await {
            // The pool opens no connection to a server that was demoted before this call.
            Err(error) if error.kind() == ErrorKind::ReadOnly => Ok(Role::Replica),
            answer => answer,
        }
    }

    /// Waits for the kills that are under way, and then closes all connections. Those of the
    /// program's pool go back there.
    pub(crate) async fn close(&self) {
        self.statement_killer.finish().await;
        let config = self.config();
        for channel in [&self.main, &self.side] {
            for connection in channel.close() {
                if config.is_own_pool() {
                    drop(connection);
                    continue;
                }
                let _ = time::timeout(config.connect_timeout, connection.disconnect()).await;
            }
        }
    }
}

const MAIN_FULL: &str = "with strategy=pessimistic, each held lock and the first waiter of each \
                         name need one; raise pool_size";
const SIDE_FULL: &str = "this quarter of the pool serves tokens and the ending of statements, so \
                         the server is slow; raise op_timeout or pool_size";
