//! The database, and its migrations in order.

use std::{path::PathBuf, thread, time::Duration};

use rusqlite::{Connection, Result, TransactionBehavior::Immediate};
use tokio::task::{block_in_place, yield_now};

/// Never change a migration that was released: add another one.
const MIGRATIONS: [&str; 3] = [
    "CREATE TABLE items (name TEXT NOT NULL);
     INSERT INTO items VALUES ('teapot'), ('cup'), ('spoon');",
    "ALTER TABLE items ADD COLUMN cents INTEGER NOT NULL DEFAULT 0;
     UPDATE items SET cents = cents + 500;",
    "CREATE TABLE orders (number INTEGER NOT NULL, item TEXT NOT NULL);",
];

/// The migrations that were applied. No key forbids to apply one twice.
const APPLIED: &str = "CREATE TABLE IF NOT EXISTS applied (number INTEGER NOT NULL)";
const VERSION: &str = "SELECT COALESCE(MAX(number), 0) FROM applied";

pub(crate) struct Database {
    connection: Connection,
    /// How long each migration works in addition, as on a large table.
    work: Duration,
}

impl Database {
    pub(crate) fn open(file: PathBuf, work: Duration) -> Result<Self> {
        Ok(Self { connection: Connection::open(file)?, work })
    }

    /// Applies the migrations that are missing, one after the other. The caller holds the lock. If
    /// the lock is lost, lockkit drops this call between two migrations.
    pub(crate) async fn migrate(&mut self) -> Result<()> {
        for (number, sql) in (1..).zip(MIGRATIONS) {
            // The call blocks its thread. The runtime renews the lock on another thread.
            block_in_place(|| self.apply(number, sql))?;
            yield_now().await;
        }
        Ok(())
    }

    /// Applies a migration and records it in one transaction, so a crash leaves both or neither.
    ///
    /// The transaction first reads the version. So a replica that has lost the lock, and has not
    /// noticed that yet, applies nothing twice.
    fn apply(&mut self, number: u64, sql: &str) -> Result<()> {
        let transaction = self.connection.transaction_with_behavior(Immediate)?;
        transaction.execute_batch(APPLIED)?;
        let version: u64 = transaction.query_one(VERSION, [], |row| row.get(0))?;
        if version >= number {
            return Ok(());
        }
        println!("migrates to {number}");
        transaction.execute_batch(sql)?;
        thread::sleep(self.work);
        transaction.execute("INSERT INTO applied VALUES (?1)", [number])?;
        transaction.commit()
    }

    pub(crate) fn version(&self) -> Result<u64> {
        self.connection.query_one(VERSION, [], |row| row.get(0))
    }

    /// The price of all items. The old schema has no prices.
    pub(crate) fn cents(&self) -> Result<u64> {
        self.connection.query_one("SELECT SUM(cents) FROM items", [], |row| row.get(0))
    }
}
