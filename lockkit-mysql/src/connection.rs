//! A connection to the server that knows whether the next statement may use it.

#[cfg(test)]
mod tests;

use std::{fmt, future::pending};

use futures_util::FutureExt as _;
use lockkit_core::{Clock, ErrorKind, Result, Tick};
use mysql_async::{
    self as my, Conn, Params, Row, Statement, Value, consts::StatusFlags, prelude::Queryable,
};
use tokio::{
    runtime::{Handle, Id},
    task::AbortHandle,
};

use crate::{
    error::{self, Phase},
    server::Server,
};

/// A connection that one task uses at a time.
///
/// After a call that was dropped midway, the driver answers the next statement with the reply to
/// that call. Neither its ping nor its reset notices this. So each call leaves a mark, and removes
/// it when it has read its answer to the end. A connection that still has the mark is never used
/// again.
pub(crate) struct Connection {
    /// `None` once the connection was given up.
    conn: Option<Conn>,
    state: State,
    /// The driver has a cache, too. But before it looks there, it reads the whole text for the
    /// names of parameters.
    prepared: Vec<(Box<str>, Statement)>,
    /// As the server reported it last. Also true after a script failed.
    in_transaction: bool,
    /// Whether each statement is a transaction of its own, as the server reported it last.
    autocommit: bool,
    session: Session,
    /// Unique among all connections of the pool.
    number: u64,
    server: Server,
    /// `None` if there never was a connection.
    home: Option<Home>,
    used: Tick,
}

/// The runtime that drives the socket of a connection.
struct Home {
    runtime: Id,
    /// A task that waits for ever. It ends with the connection or with the runtime. Nothing else
    /// reports the end of a runtime.
    task: AbortHandle,
}

impl Home {
    fn here() -> Self {
        let runtime = Handle::current();
        #[expect(
            clippy::disallowed_methods,
            reason = "it does nothing, one for each connection, and ends with it"
        )]
        let task = runtime.spawn(pending::<()>());
        Self { runtime: runtime.id(), task: task.abort_handle() }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The statements around those of a [`transaction`](Connection::transaction).
const BEGIN: &str = "START TRANSACTION;SET autocommit=0;SAVEPOINT lockkit;";
const END: &str = "RELEASE SAVEPOINT lockkit;COMMIT;SET autocommit=1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A statement is in flight, or was in flight when its future was dropped.
    InFlight,
    Dead,
}

/// The settings of a session that differ between the uses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// `wait_timeout`: the server ends a connection that sends nothing for so many seconds.
    pub(crate) idle_s: u64,
    /// `innodb_lock_wait_timeout`: for how many seconds a statement waits for a row.
    pub(crate) lock_wait_s: u64,
}

impl Session {
    /// The settings of a connection that was just set up.
    pub(crate) const FRESH: Self = Self { idle_s: 28_800, lock_wait_s: 1 };
}

/// The server's answer to a statement that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// The value that the statement put into `LAST_INSERT_ID()`.
    pub(crate) id: u64,
    pub(crate) affected: u64,
}

/// The result of a `KILL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killed {
    /// There is no such connection.
    WasGone,
    /// The connection was there, and ends now.
    WasThere,
}

/// Why a script failed that was to end a transaction.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: my::Error,
    /// The server refused a statement before the end, so the end was not run.
    pub(crate) is_before_end: bool,
}

/// The answer to one statement of a script.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) rows: Vec<Row>,
    pub(crate) outcome: Outcome,
}

impl Connection {
    /// A fresh connection, which belongs to the current runtime.
    pub(crate) fn new(conn: Conn, number: u64, server: Server) -> Self {
        let home = Some(Home::here());
        Self { conn: Some(conn), state: State::Idle, number, server, home, ..Self::none() }
    }

    /// A placeholder without a connection.
    pub(crate) fn none() -> Self {
        Self {
            conn: None,
            state: State::Dead,
            prepared: Vec::new(),
            in_transaction: false,
            autocommit: true,
            session: Session::FRESH,
            number: 0,
            server: Server::default(),
            home: None,
            used: Clock::Boot.now(),
        }
    }

    /// Runs a prepared statement that returns no rows. `sql` must be one of a few texts, because
    /// each text stays prepared, and the driver closes prepared statements when there are many.
    ///
    /// # Cancel safety
    /// A call that is dropped midway makes the connection unusable. The same holds for the calls
    /// below.
    pub(crate) async fn run(
        &mut self,
        sql: &str,
        params: Vec<Value>,
    ) -> Result<Outcome, my::Error> {
        self.begin()?;
        let answer = self.execute(sql, params).await;
        self.settle(answer.as_ref().err());
        answer.map(|_| self.outcome())
    }

    /// Runs a prepared statement and reads its rows. `sql` must be one of a few texts.
    pub(crate) async fn rows(
        &mut self,
        sql: &str,
        params: Vec<Value>,
    ) -> Result<Vec<Row>, my::Error> {
        self.begin()?;
        let answer = self.execute(sql, params).await;
        self.settle(answer.as_ref().err());
        answer
    }

    async fn execute(&mut self, sql: &str, params: Vec<Value>) -> Result<Vec<Row>, my::Error> {
        let conn =
            self.conn.as_mut().ok_or(my::Error::Driver(my::DriverError::ConnectionClosed))?;
        let known = self.prepared.iter().find(|(text, _)| **text == *sql);
        let statement = match known {
            Some((_, statement)) => statement.clone(),
            None => {
                let statement = conn.prep(sql).await?;
                self.prepared.push((sql.into(), statement.clone()));
                statement
            }
        };
        conn.exec(statement, Params::Positional(params)).await
    }

    fn outcome(&self) -> Outcome {
        let packet = self.conn.as_ref().and_then(Conn::last_ok_packet);
        let id = packet.and_then(|packet| packet.last_insert_id()).unwrap_or(0);
        Outcome { id, affected: packet.map_or(0, |packet| packet.affected_rows()) }
    }

    /// Runs several statements in one request, up to the first that fails.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<Vec<Step>, my::Error> {
        let mut steps = Vec::new();
        self.steps(sql, &mut steps).await.map(|()| steps)
    }

    /// Runs several statements as one transaction, in one request: all of them are done, or none.
    ///
    /// Galera may roll a transaction back between two of its statements. It does not report that,
    /// and it runs the remaining statements. So autocommit is off until the end, and the remaining
    /// statements can't be committed one by one. The savepoint ends with its transaction. If the
    /// savepoint is missing at the end, none of the remaining statements is committed. If Galera
    /// rolls back after that check of the savepoint, there is nothing to commit, and the last
    /// answer is a deadlock.
    ///
    /// The commit and the restored autocommit are two statements. Galera may repeat a commit, and
    /// then it forgets the rest of a statement that would do both.
    ///
    /// # Errors
    /// Nothing was done if the server reports an error that is not fatal. Call
    /// [`roll_back`](Self::roll_back) then.
    pub(crate) async fn transaction(&mut self, sql: &str) -> Result<Vec<Step>, my::Error> {
        self.between(BEGIN, sql, END).await
    }

    /// As [`transaction`](Self::transaction), without the savepoint. Galera may undo the first
    /// statements and run the rest, so the last statement must do nothing without the effects of
    /// the others.
    ///
    /// It must not begin with `START TRANSACTION` while autocommit is on. Galera would repeat the
    /// commit of a transaction that it has rolled back, and report success.
    pub(crate) async fn short_transaction(&mut self, sql: &str) -> Result<Vec<Step>, my::Error> {
        self.between("SET autocommit=0;", sql, "SET autocommit=1").await
    }

    async fn between(&mut self, begin: &str, sql: &str, end: &str) -> Result<Vec<Step>, my::Error> {
        let steps = self.script(&format!("{begin}{sql};{end}")).await?;
        if !self.is_clean() {
            // The server stopped before the end, and did not report it.
            self.state = State::Dead;
            return Err(my::Error::Driver(my::DriverError::ConnectionClosed));
        }
        let begun = begin.matches(';').count();
        let ended = end.matches(';').count() + 1;
        let inner = steps.len().saturating_sub(begun + ended);
        Ok(steps.into_iter().skip(begun).take(inner).collect())
    }

    /// Undoes a transaction that failed midway. A single statement that fails rolls itself back.
    pub(crate) async fn roll_back(&mut self) -> Result<(), my::Error> {
        if self.in_transaction || !self.autocommit {
            self.script("ROLLBACK;SET autocommit=1").await?;
        }
        Ok(())
    }

    /// As [`script`](Self::script), for a script that ends a transaction and tidies up after that.
    /// It succeeds once the server has answered the end, even if a later statement fails.
    pub(crate) async fn script_to_end(&mut self, sql: &str) -> Result<Vec<Step>, Failure> {
        let mut steps = Vec::new();
        let answer = self.steps(sql, &mut steps).await;
        let end = sql.split(';').position(|statement| matches!(statement, "COMMIT" | "ROLLBACK"));
        match answer {
            Err(error) if end.is_none_or(|end| steps.len() <= end) => {
                let is_before_end =
                    error::code(&error).is_some() && end.is_some_and(|end| steps.len() < end);
                Err(Failure { error, is_before_end })
            }
            Ok(()) | Err(_) => Ok(steps),
        }
    }

    async fn steps(&mut self, sql: &str, steps: &mut Vec<Step>) -> Result<(), my::Error> {
        let answer = script(self.begin()?, sql, steps).await;
        self.settle(answer.as_ref().err());
        // The script may have failed between the start and the end of a transaction.
        self.in_transaction |= answer.is_err();
        answer
    }

    /// Asks whether the server is still there.
    pub(crate) async fn ping(&mut self) -> Result<(), my::Error> {
        let answer = self.begin()?.ping().await;
        self.settle(answer.as_ref().err());
        answer
    }

    /// The driver's connection, for statements of the user. No other call can use the connection
    /// until [`settle_foreign`](Self::settle_foreign) was called.
    pub(crate) fn foreign(&mut self) -> Result<&mut Conn, my::Error> {
        self.begin()
    }

    /// Ends the use by the user's statements. None of them is in flight any more.
    pub(crate) fn settle_foreign(&mut self) {
        self.settle(None);
    }

    /// The error for a server that reports that it is no primary, but lets this user write. The
    /// connection is not used again, because the next connection may lead to another server.
    pub(crate) fn demoted(&mut self) -> my::Error {
        self.state = State::Dead;
        error::demoted()
    }

    fn begin(&mut self) -> Result<&mut Conn, my::Error> {
        let conn = self.conn.as_mut().filter(|_| self.state == State::Idle);
        let conn = conn.ok_or(my::Error::Driver(my::DriverError::ConnectionClosed))?;
        self.state = State::InFlight;
        Ok(conn)
    }

    fn settle(&mut self, error: Option<&my::Error>) {
        self.used = Clock::Boot.now();
        self.state = match error {
            // A demoted server answers, but can't be used. The next connection may lead to the new
            // primary.
            Some(error) if error::is_fatal(error) || error::is_demotion(error) => State::Dead,
            _ => State::Idle,
        };
        if let Some(packet) = self.conn.as_ref().and_then(Conn::last_ok_packet) {
            self.in_transaction =
                packet.status_flags().contains(StatusFlags::SERVER_STATUS_IN_TRANS);
            self.autocommit = packet.status_flags().contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT);
        }
    }

    /// Whether the server reports an open transaction. Also true if that is not known.
    pub(crate) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Whether the next user may have the connection.
    pub(crate) fn is_clean(&self) -> bool {
        self.conn.is_some() && self.state == State::Idle && !self.in_transaction && self.autocommit
    }

    /// Whether the connection belongs to this runtime. Another runtime may be blocked, and then no
    /// data comes from the socket.
    pub(crate) fn is_of(&self, runtime: Id) -> bool {
        self.home.as_ref().is_some_and(|home| home.runtime == runtime)
    }

    /// Whether the runtime of the connection has ended, and with it the socket.
    pub(crate) fn has_lost_its_runtime(&self) -> bool {
        self.home.as_ref().is_none_or(|home| home.task.is_finished())
    }

    /// The settings that were set last, if the server has answered the request.
    pub(crate) fn session(&self) -> Session {
        self.session
    }

    pub(crate) fn set_session(&mut self, session: Session) {
        self.session = session;
    }

    /// When the last answer came.
    pub(crate) fn used(&self) -> Tick {
        self.used
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn set_server(&mut self, server: Server) {
        self.server = server;
    }

    /// Sets the server's number of this connection. A number that has changed shows that there is a
    /// proxy, which has its own connections to the server.
    pub(crate) fn set_thread(&mut self, thread: u64) {
        self.server.is_direct &= thread == self.server.thread;
        self.server.thread = thread;
    }

    /// Closes a clean connection of this runtime in order, and gives up any other.
    pub(crate) async fn disconnect(mut self) {
        let is_of_here = Handle::try_current().is_ok_and(|runtime| self.is_of(runtime.id()));
        if self.is_clean() && is_of_here {
            if let Some(conn) = self.conn.take() {
                // A failure does no harm, because the server also notices the end of the socket.
                let _ = conn.disconnect().await;
            }
        } else {
            drop(self.give_up());
        }
    }

    /// Takes the driver's connection out of use.
    pub(crate) fn give_up(&mut self) -> Option<GivenUp> {
        let was_clean = self.is_clean();
        let conn = self.conn.take()?;
        let server = self.server.clone();
        Some(GivenUp { conn, was_clean, is_in_flight: self.state == State::InFlight, server })
    }

    /// Ends another connection of the same server.
    ///
    /// # Errors
    /// Returns the server's error. Behind a proxy it is an error, too, because the number may be
    /// that of another client's connection.
    pub(crate) async fn kill(&mut self, thread: u64) -> Result<Killed> {
        if !self.server.is_direct {
            let reason = "ending a connection: a proxy between this client and the server numbers connections in its own \
                          way, so a KILL could end another client's; the server's timeouts end it instead";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
        match self.script(&format!("KILL CONNECTION {thread}")).await {
            Ok(_) => Ok(Killed::WasThere),
            Err(error) if error::code(&error) == Some(error::NO_SUCH_THREAD) => {
                self.in_transaction = false;
                Ok(Killed::WasGone)
            }
            Err(error) => Err(error::from_mysql(error, Phase::Write, "ending a connection")),
        }
    }
}

/// A connection that was given up. Its socket is open until this value is dropped.
pub(crate) struct GivenUp {
    conn: Conn,
    was_clean: bool,
    /// The server may still be at work on a statement of this connection.
    pub(crate) is_in_flight: bool,
    pub(crate) server: Server,
}

impl Drop for GivenUp {
    /// Without this, the driver would spawn a task that reads the rest of the answer, perhaps for
    /// ever.
    fn drop(&mut self) {
        if !self.was_clean && !self.conn.is_disconnected() {
            // A call that was dropped midway leaves the driver's own mark. With that mark, the ping
            // only closes the socket.
            let _ = self.conn.ping().now_or_never();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("number", &self.number)
            .field("state", &self.state)
            .field("in_transaction", &self.in_transaction)
            .finish_non_exhaustive()
    }
}

/// Runs several statements in one request, up to the first that fails.
///
/// # Errors
/// The error of that statement. The steps before it are in `steps`.
pub(crate) async fn script(
    conn: &mut impl Queryable,
    sql: &str,
    steps: &mut Vec<Step>,
) -> Result<(), my::Error> {
    let mut results = conn.query_iter(sql).await?;
    loop {
        let outcome = Outcome {
            id: results.last_insert_id().unwrap_or(0),
            affected: results.affected_rows(),
        };
        let is_last = results.is_empty();
        let has_columns = !results.columns_ref().is_empty();
        // Also where no rows are left: the driver reports the refusal of a later statement only
        // here, as if it were the answer.
        let (rows, answer) = match results.collect().await {
            Ok(rows) => (rows, Ok(())),
            // This statement was answered, and the connection broke on the way to the next answer.
            Err(error) if !has_columns && error::code(&error).is_none() => (Vec::new(), Err(error)),
            Err(error) => return Err(error),
        };
        steps.push(Step { rows, outcome });
        answer?;
        if is_last {
            return Ok(());
        }
    }
}
