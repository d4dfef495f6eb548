//! Runs all requests to the file on one thread.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lockkit_core::{Clock, Error, ErrorKind, Result, Tick};
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use tokio::sync::oneshot;

use crate::error::{from_sqlite, ours};

/// The time for which one request waits for the transactions of other processes. Each of these
/// takes a fraction of a millisecond.
const BUSY: Duration = Duration::from_secs(1);
/// As [`BUSY`], during the creation of the file. Its first pages must be on the disk before other
/// processes may read them.
const BUSY_AT_FIRST: Duration = Duration::from_secs(10);
/// The number of retries of a change for which SQLite itself does not wait.
const TRIES: usize = 100;

/// The layout of the tables that this version reads and writes.
const VERSION: i64 = 1;

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// One connection. Its thread does the requests in the order of their calls. It also does abandoned
/// requests, so a release comes after every abandoned attempt.
#[derive(Debug)]
pub(crate) struct Database {
    file: PathBuf,
    line: Mutex<Option<Line>>,
}

#[derive(Debug)]
struct Line {
    jobs: mpsc::Sender<Job>,
    ended: oneshot::Receiver<()>,
}

impl Database {
    /// Opens the file, and creates missing tables.
    pub(crate) async fn open(file: PathBuf) -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (opened, outcome) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let path = file.clone();
        let work = move || {
            // The sender is dropped last, after the connection is closed.
            let _end: oneshot::Sender<()> = end;
            match connect(&path) {
                Ok(mut connection) => {
                    let _is_awaited = opened.send(Ok(()));
                    queue.into_iter().for_each(|job| job(&mut connection));
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        let thread = thread::Builder::new().name("lockkit-sqlite".to_owned()).spawn(work);
        thread.map_err(|error| {
            ours(
                ErrorKind::Unavailable,
                format!("could not start the thread of the store: {error}"),
            )
        })?;
        outcome.await.map_err(has_ended)??;
        Ok(Self { file, line: Mutex::new(Some(Line { jobs, ended })) })
    }

    /// Reads at one instant. `work` gets this instant in microseconds of the wall clock.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(TransactionBehavior::Deferred, Tick::NEVER, work).await
    }

    /// Changes the file at one instant, while no other process can change it. `work` gets this
    /// instant. If the instant is after `not_after` on the boot clock, this changes nothing.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        not_after: Tick,
        work: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        // A deferred transaction could fail at its first write, because another process may have
        // changed the rows that it read.
        self.run(TransactionBehavior::Immediate, not_after, work).await
    }

    async fn run<T: Send + 'static>(
        &self,
        behavior: TransactionBehavior,
        not_after: Tick,
        work: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let file = self.file.clone();
        let job = move |connection: &mut Connection| {
            let _is_awaited = reply.send(transact(connection, behavior, not_after, &file, work));
        };
        self.send(Box::new(job))?;
        answer.await.map_err(|lost| has_ended(lost).with_outcome_unknown())?
    }

    fn send(&self, job: Job) -> Result<()> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let line = line.as_ref().ok_or_else(|| ours(ErrorKind::Closed, "the store is closed"))?;
        line.jobs.send(job).map_err(has_ended)
    }

    /// Finishes all earlier requests, and closes the file.
    pub(crate) async fn close(&self) {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Line { jobs, ended }) = line {
            drop(jobs);
            // The thread never sends a message, so the receiver always gets an error. It means that
            // the thread has ended.
            let _ended = ended.await;
        }
    }
}

fn has_ended<E>(_: E) -> Error {
    ours(ErrorKind::Unexpected, "the thread of the store has ended")
}

fn connect(file: &Path) -> Result<Connection> {
    let failed = |error| from_sqlite(error, "could not open", file);
    let connection = Connection::open(file).map_err(failed)?;
    connection.busy_timeout(BUSY_AT_FIRST).map_err(failed)?;
    use_wal(&connection).map_err(failed)?;
    connection.execute_batch(include_str!("schema.sql")).map_err(failed)?;
    let found: i64 = connection
        .query_row("SELECT version FROM lockkit_store", [], |row| row.get(0))
        .map_err(failed)?;
    if found != VERSION {
        let text = format!(
            "could not open {file:?}: its tables have version {found}, and this program knows \
             {VERSION}"
        );
        return Err(ours(ErrorKind::WrongType, text));
    }
    connection.busy_timeout(BUSY).map_err(failed)?;
    Ok(connection)
}

/// Switches the file to WAL. SQLite does not wait for other processes that change the mode at the
/// same time, for example if they open a new file together. It waits for them when a transaction
/// begins.
fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
    const SQL: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL";
    for _ in 0..TRIES {
        match connection.execute_batch(SQL) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?;
            }
            outcome => return outcome,
        }
    }
    connection.execute_batch(SQL)
}

fn transact<T>(
    connection: &mut Connection,
    behavior: TransactionBehavior,
    not_after: Tick,
    file: &Path,
    work: impl FnOnce(&Transaction<'_>, i64) -> rusqlite::Result<T>,
) -> Result<T> {
    let failed = |error| from_sqlite(error, "could not use", file);
    let transaction = connection.transaction_with_behavior(behavior).map_err(failed)?;
    // This checks the time when no other process can write, because the request may have waited.
    if Clock::Boot.now() > not_after {
        let text = format!("could not use {file:?}: other processes locked it for too long");
        return Err(ours(ErrorKind::Unavailable, text));
    }
    let done = work(&transaction, wall_clock_us()).map_err(failed)?;
    transaction.commit().map_err(|error| failed(error).with_outcome_unknown())?;
    Ok(done)
}

/// The wall clock in microseconds. SQLite's own clock counts milliseconds, so a counter that was
/// lost and started again within a millisecond would give the same token twice.
#[expect(
    clippy::disallowed_methods,
    reason = "all users of the file are on this host, and share its clock"
)]
fn wall_clock_us() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}
