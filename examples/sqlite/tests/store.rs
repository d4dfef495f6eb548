//! Tests that the conformance suite can't do on a SQLite file, and tests with files that are not
//! stores of lockkit.

use std::{fs, path::Path, time::Duration};

use lockkit_core::{
    Clock, ErrorKind, FencingToken, Kind, LockName, OwnerId,
    spi::{Admin as _, Attempt, Backend as _, Claim, ClaimSpec, Mode, Released, Wait},
};
use lockkit_example_sqlite::{Config, Sqlite};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::{task::JoinSet, time::timeout};

const LEASE: Duration = Duration::from_secs(60);

struct Stage {
    folder: TempDir,
    store: Sqlite,
}

impl Stage {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let store = Sqlite::open(Config::new(folder.path().join("locks.db"))).await.unwrap();
        Self { folder, store }
    }

    fn sql(&self, batch: &str) -> Connection {
        let connection = Connection::open(self.folder.path().join("locks.db")).unwrap();
        connection.execute_batch(batch).unwrap();
        connection
    }

    fn claim(&self, op_timeout: Duration) -> Box<dyn Claim> {
        let spec = ClaimSpec::new(name(), OwnerId::random(), Mode::Exclusive, LEASE, op_timeout);
        self.store.claim(spec).unwrap()
    }

    async fn holders(&self) -> usize {
        self.store.inspect(&name()).await.unwrap().holders.len()
    }
}

fn name() -> LockName {
    LockName::new(Kind::Mutex, "x").unwrap()
}

async fn token_of(claim: &mut Box<dyn Claim>) -> FencingToken {
    match claim.attempt(Wait::No).await.unwrap() {
        Attempt::Granted(grant) => grant.token,
        Attempt::Busy { .. } => panic!("the lock is taken"),
    }
}

#[tokio::test]
async fn c5_a_late_attempt_does_nothing() {
    let stage = Stage::new().await;
    let op_timeout = Duration::from_millis(50);
    let mut claim = stage.claim(op_timeout);
    let not_after = Clock::Boot.now().after(op_timeout);
    let writer = stage.sql("BEGIN IMMEDIATE");
    // The caller gave up the request, or the store refused it because this machine was too slow.
    let outcome = timeout(2 * op_timeout, claim.attempt(Wait::No)).await;
    assert!(!matches!(outcome, Ok(Ok(_))), "{outcome:?} while another process keeps the file");
    assert!(Clock::Boot.now() > not_after);
    drop(writer);
    assert_eq!(stage.holders().await, 0);
}

#[tokio::test]
async fn c5_a_release_undoes_an_earlier_abandoned_attempt() {
    let stage = Stage::new().await;
    let mut claim = stage.claim(LEASE);
    let writer = stage.sql("BEGIN IMMEDIATE");
    timeout(Duration::ZERO, claim.attempt(Wait::No))
        .await
        .expect_err("another process keeps the file");
    let (released, ()) = tokio::join!(claim.release(), async { drop(writer) });
    assert_eq!(
        released.unwrap(),
        Released::Freed,
        "the attempt was in time, and the store did it first"
    );
    assert_eq!(stage.holders().await, 0);
}

#[tokio::test]
async fn c13_a_file_locked_by_another_process_gives_an_error_in_time() {
    let stage = Stage::new().await;
    let _writer = stage.sql("BEGIN IMMEDIATE");
    let error = stage.claim(LEASE).attempt(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "nothing was changed: {error}");
    assert!(error.to_string().contains("another process keeps it locked"), "{error}");
    stage.store.probe().await.expect_err("the store can grant no lock");
}

#[tokio::test]
async fn c4_tokens_rise_after_a_clock_step_back_and_a_reopening() {
    let mut stage = Stage::new().await;
    let last = 1 << 60;
    stage.sql(&format!("UPDATE lockkit_store SET last_token = {last}"));
    let mut claim = stage.claim(LEASE);
    assert_eq!(token_of(&mut claim).await.get(), last + 1);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    stage.store.close().await.unwrap();
    stage.store = Sqlite::open(Config::new(stage.folder.path().join("locks.db"))).await.unwrap();
    assert_eq!(token_of(&mut stage.claim(LEASE)).await.get(), last + 2);
}

#[tokio::test]
async fn c4_tokens_rise_after_a_backup_is_restored() {
    let stage = Stage::new().await;
    let mut claim = stage.claim(LEASE);
    let first = token_of(&mut claim).await;
    // This restores the counter to its state before that grant.
    stage.sql("DELETE FROM lockkit_locks; UPDATE lockkit_store SET last_token = 0");
    assert!(token_of(&mut stage.claim(LEASE)).await > first);
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn c13_a_file_that_is_not_a_store_is_refused() {
    async fn refused(file: &Path) -> ErrorKind {
        let error = Sqlite::open(Config::new(file)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(file.to_str().unwrap()) && !text.contains('\n'), "{text}");
        error.kind()
    }
    let stage = Stage::new().await;
    let folder = stage.folder.path();
    assert_eq!(refused(&folder.join("no-folder/locks.db")).await, ErrorKind::Unavailable);
    fs::write(
        folder.join("text"),
        "not a database, but long enough for SQLite to read it".repeat(9),
    )
    .unwrap();
    assert_eq!(refused(&folder.join("text")).await, ErrorKind::WrongType);
    stage.sql("UPDATE lockkit_store SET version = 2");
    assert_eq!(refused(&folder.join("locks.db")).await, ErrorKind::WrongType);
    let foreign = Connection::open(folder.join("foreign.db")).unwrap();
    foreign.execute_batch("CREATE TABLE lockkit_store (x TEXT)").unwrap();
    assert_eq!(refused(&folder.join("foreign.db")).await, ErrorKind::WrongType);
}

#[tokio::test]
async fn a_closed_store_returns_a_closed_error() {
    let stage = Stage::new().await;
    stage.store.close().await.unwrap();
    assert_eq!(stage.store.inspect(&name()).await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(
        !stage.folder.path().join("locks.db-wal").exists(),
        "SQLite removes it with the last connection"
    );
}

#[tokio::test]
async fn many_processes_can_open_a_new_file_at_once() {
    for _ in 0..5 {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("locks.db");
        let mut opening = JoinSet::new();
        for _ in 0..16 {
            opening.spawn(Sqlite::open(Config::new(file.clone())));
        }
        for opened in opening.join_all().await {
            opened.unwrap();
        }
    }
}
