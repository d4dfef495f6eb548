//! Creates the SQLite store under test, with a separate file for each case.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Store};
use lockkit_core::{
    LockName,
    spi::{Backend, Descriptor},
};
use lockkit_example_sqlite::{Config, DESCRIPTOR, Sqlite};
use rusqlite::Connection;
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct SqliteStore;

#[async_trait]
impl Store for SqliteStore {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn descriptor(&self) -> Descriptor {
        DESCRIPTOR.clone()
    }

    fn hooks(&self) -> Vec<Hook> {
        vec![Hook::Flush]
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(File(folder()?)))
    }
}

/// The folder is in memory if the system has such a place. Cases give requests at most 20 ms, and a
/// busy disk takes longer.
fn folder() -> io::Result<TempDir> {
    const MEMORY: &str = "/dev/shm";
    if Path::new(MEMORY).is_dir() { TempDir::new_in(MEMORY) } else { TempDir::new() }
}

/// Changes the file without lockkit, as an operator does.
#[derive(Debug)]
struct File(TempDir);

impl File {
    fn path(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }

    fn sql(&self, batch: &str) -> Result<Connection, BoxError> {
        let connection = Connection::open(self.path())?;
        connection.execute_batch(batch)?;
        Ok(connection)
    }
}

#[async_trait]
impl Harness for File {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(Sqlite::open(Config::new(self.path())).await?))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        const SQL: &str = "DELETE FROM lockkit_locks WHERE kind = ?1 AND name = ?2";
        self.sql("")?.execute(SQL, [name.kind().as_str(), name.as_str()])?;
        Ok(())
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        // Ended rows do not count, because the next grant of any name deletes them.
        const SQL: &str = "SELECT kind || ' ' || name FROM lockkit_locks WHERE expires_us >= unixepoch('subsec') * 1000000";
        let connection = self.sql("")?;
        let mut rows = connection.prepare(SQL)?;
        let rows = rows.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    async fn close(&self) {}

    async fn flush(&self) -> Result<(), BoxError> {
        self.sql("DELETE FROM lockkit_locks; DELETE FROM lockkit_store")?;
        Ok(())
    }
}
