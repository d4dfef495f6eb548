//! One connection to the server, and whether it can be trusted with the next statement.

use std::{fmt, future::pending};

use futures_util::FutureExt as _;
use lockkit_core::{Clock, ErrorKind, Result, Tick};
use mysql_async::{
    self as my, Conn, Params, Row, Statement, Value, consts::StatusFlags, prelude::Queryable as _,
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
/// The driver answers the next statement with the reply of one that was dropped midway, and neither
/// its ping nor its reset notices. So each call leaves a mark, and takes it away when its answer
/// was read to the end: what still has it is never used again.
pub(crate) struct Connection {
    /// `None` once it was given up.
    conn: Option<Conn>,
    state: State,
    /// The driver has a cache of its own, and reads the whole text for the names of parameters
    /// before it looks there.
    prepared: Vec<(Box<str>, Statement)>,
    /// What the server said last, or may be if a script failed.
    in_transaction: bool,
    /// What the server said last: whether a statement is a transaction of its own.
    autocommit: bool,
    session: Session,
    /// Of all connections of this process.
    number: u64,
    server: Server,
    /// `None` if there never was a connection.
    home: Option<Home>,
    used: Tick,
}

/// The runtime that drives the socket of a connection.
struct Home {
    runtime: Id,
    /// Waits for ever: it ends with the connection, or with the runtime, which tells its end in no
    /// other way.
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

/// Around the statements of a [`transaction`](Connection::transaction).
const BEGIN: &str = "START TRANSACTION;SET autocommit=0;SAVEPOINT lockkit;";
const END: &str = "RELEASE SAVEPOINT lockkit;COMMIT;SET autocommit=1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// A statement is in flight; or was, when its future was dropped.
    InFlight,
    Dead,
}

/// The session's settings that are not the same for all uses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// `wait_timeout`: after how many seconds without a word the server ends the connection.
    pub(crate) idle_s: u64,
    /// `innodb_lock_wait_timeout`: for how many seconds a statement waits for a row.
    pub(crate) lock_wait_s: u64,
}

impl Session {
    /// As a connection is set up.
    pub(crate) const FRESH: Self = Self { idle_s: 28_800, lock_wait_s: 1 };
}

/// What the server says of a statement that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What the statement put into `LAST_INSERT_ID()`.
    pub(crate) id: u64,
    pub(crate) affected: u64,
}

/// What a `KILL` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Killed {
    /// There is no such connection.
    WasGone,
    /// It goes now.
    WasThere,
}

/// How a script went wrong that was to end a transaction.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) error: my::Error,
    /// The server has refused a statement before the end, which was not run then.
    pub(crate) is_before_end: bool,
}

/// One statement of a script.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) rows: Vec<Row>,
    pub(crate) outcome: Outcome,
}

impl Connection {
    /// A fresh connection, which belongs to the runtime that this runs in.
    pub(crate) fn new(conn: Conn, number: u64, server: Server) -> Self {
        let home = Some(Home::here());
        Self { conn: Some(conn), state: State::Idle, number, server, home, ..Self::none() }
    }

    /// No connection.
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

    /// Runs a prepared statement that returns no rows. Its text must be one of a few: it stays
    /// prepared, and the driver closes those that are many.
    ///
    /// # Cancel safety
    /// Dropped midway, the connection is of no use any more. The same holds for the calls below.
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

    /// Runs a prepared statement, one of a few, and reads its rows.
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
    /// Galera may roll a transaction back between two of its statements, does not report that, and
    /// runs the rest. So autocommit is off until the end: the rest can't be committed piece by
    /// piece. The savepoint ends with its transaction: without the savepoint, nothing of the rest
    /// is committed. If Galera rolls back after that look at the savepoint, there is nothing to
    /// commit, and the last answer is a deadlock. To restore autocommit with the commit, in one
    /// statement, would not do: Galera may repeat a commit, and then forgets the rest of such a
    /// statement.
    ///
    /// # Errors
    /// Nothing was done if it is an error of the server that is not fatal. Call
    /// [`roll_back`](Self::roll_back) then.
    pub(crate) async fn transaction(&mut self, sql: &str) -> Result<Vec<Step>, my::Error> {
        let mut steps = self.script(&format!("{BEGIN}{sql};{END}")).await?;
        if !self.is_clean() {
            // The server stopped before the end, and did not say so.
            self.state = State::Dead;
            return Err(my::Error::Driver(my::DriverError::ConnectionClosed));
        }
        let first = BEGIN.matches(';').count();
        Ok(steps.drain(..).skip(first).collect())
    }

    /// Undoes a transaction that failed midway. A single statement has rolled itself back.
    pub(crate) async fn roll_back(&mut self) -> Result<(), my::Error> {
        if self.in_transaction || !self.autocommit {
            self.script("ROLLBACK;SET autocommit=1").await?;
        }
        Ok(())
    }

    /// As [`script`](Self::script), for one that ends a transaction and tidies up after that: what
    /// was asked for is done once the end was answered, whatever comes of the rest.
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
        // It may have failed between the start and the end of a transaction.
        self.in_transaction |= answer.is_err();
        answer
    }

    /// Asks whether the server is still there.
    pub(crate) async fn ping(&mut self) -> Result<(), my::Error> {
        let answer = self.begin()?.ping().await;
        self.settle(answer.as_ref().err());
        answer
    }

    /// The driver's connection, for statements of the user's own. It is of no use to others until
    /// [`settle_foreign`](Self::settle_foreign) was called.
    pub(crate) fn foreign(&mut self) -> Result<&mut Conn, my::Error> {
        self.begin()
    }

    /// Nothing of the user's statements is in flight any more.
    pub(crate) fn settle_foreign(&mut self) {
        self.settle(None);
    }

    /// What to say when the server has told that it is no primary, to a user whom it lets write.
    /// The next connection may lead to another server.
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
            // A demoted server answers, and is of no use: the next connection may lead to the new
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

    /// Whether the server says that a transaction is open; true also if that is not known.
    pub(crate) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Whether the next user may have it.
    pub(crate) fn is_clean(&self) -> bool {
        self.conn.is_some() && self.state == State::Idle && !self.in_transaction && self.autocommit
    }

    /// Whether it can be used in a runtime: another one may stand still, and then nothing comes
    /// from the socket.
    pub(crate) fn is_of(&self, runtime: Id) -> bool {
        self.home.as_ref().is_some_and(|home| home.runtime == runtime)
    }

    /// Whether its runtime has ended, and with that its socket.
    pub(crate) fn has_lost_its_runtime(&self) -> bool {
        self.home.as_ref().is_none_or(|home| home.task.is_finished())
    }

    /// What was set last, if the server has answered to it.
    pub(crate) fn session(&self) -> Session {
        self.session
    }

    pub(crate) fn set_session(&mut self, session: Session) {
        self.session = session;
    }

    /// When it last got an answer.
    pub(crate) fn used(&self) -> Tick {
        self.used
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    pub(crate) fn set_server(&mut self, server: Server) {
        self.server = server;
    }

    /// The server's number of it, where that is another one than before: a proxy gives its own for
    /// those that it has.
    pub(crate) fn set_thread(&mut self, thread: u64) {
        self.server.is_direct &= thread == self.server.thread;
        self.server.thread = thread;
    }

    /// Says goodbye in order.
    pub(crate) async fn disconnect(mut self) {
        let is_of_here = Handle::try_current().is_ok_and(|runtime| self.is_of(runtime.id()));
        if self.is_clean() && is_of_here {
            if let Some(conn) = self.conn.take() {
                // The server notices the end of the socket, too.
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
    /// What the server says; or that there is a proxy, on which the number may be that of somebody
    /// else's connection.
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
    /// A statement of it may still be at work on the server.
    pub(crate) is_in_flight: bool,
    pub(crate) server: Server,
}

impl Drop for GivenUp {
    /// Left to itself, the driver would spawn a task that reads what is still to come, which may be
    /// for ever.
    fn drop(&mut self) {
        if !self.was_clean && !self.conn.is_disconnected() {
            // A call that was dropped midway leaves the driver's own mark, with which it just
            // closes the socket.
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

async fn script(conn: &mut Conn, sql: &str, steps: &mut Vec<Step>) -> Result<(), my::Error> {
    let mut results = conn.query_iter(sql).await?;
    loop {
        let outcome = Outcome {
            id: results.last_insert_id().unwrap_or(0),
            affected: results.affected_rows(),
        };
        let is_last = results.is_empty();
        let has_columns = !results.columns_ref().is_empty();
        // Also where there is nothing left: the refusal of a later statement is found here only, as
        // if it were the answer.
        let (rows, answer) = match results.collect().await {
            Ok(rows) => (rows, Ok(())),
            // That one was answered, and it broke on the way to the next.
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
