//! The shop's database, which refuses writes of past holders.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use lockkit::FencingToken;
use rusqlite::{Connection, Result, Transaction, TransactionBehavior::Immediate};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS orders (number INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS shipments (number INTEGER NOT NULL, term INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS fences (name TEXT PRIMARY KEY, token INTEGER NOT NULL);
    INSERT OR IGNORE INTO fences VALUES ('orders', 0), ('shipping', 0);";
/// Changes no row that has seen a larger token.
const FENCE: &str = "UPDATE fences SET token = ?2 WHERE name = ?1 AND token <= ?2";
const NEXT: &str =
    "SELECT MIN(number) FROM orders WHERE number NOT IN (SELECT number FROM shipments)";

/// One connection to the database. No table has a key that forbids a duplicate number. Only the
/// locks and their tokens prevent it.
pub(crate) struct Shop(Mutex<Connection>);

impl Shop {
    pub(crate) fn open(path: PathBuf) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(Mutex::new(connection)))
    }

    pub(crate) fn last_order(&self) -> Result<u64> {
        self.with(|shop| {
            shop.query_one("SELECT COALESCE(MAX(number), 0) FROM orders", [], |row| row.get(0))
        })
    }

    /// Returns false if the token is not fresh.
    pub(crate) fn place(&self, number: u64, token: FencingToken) -> Result<bool> {
        self.fenced("orders", token, |shop| {
            shop.execute("INSERT INTO orders VALUES (?1)", [number])
        })
    }

    pub(crate) fn next_to_ship(&self) -> Result<Option<u64>> {
        self.with(|shop| shop.query_one(NEXT, [], |row| row.get(0)))
    }

    /// Returns false if the term is not fresh.
    pub(crate) fn ship(&self, number: u64, term: FencingToken) -> Result<bool> {
        let sql = "INSERT INTO shipments VALUES (?1, ?2)";
        self.fenced("shipping", term, |shop| shop.execute(sql, [number, term.get()]))
    }

    /// The numbers of orders that were placed and shipped.
    pub(crate) fn count(&self) -> Result<(u64, u64)> {
        let sql = "SELECT (SELECT COUNT(*) FROM orders), (SELECT COUNT(*) FROM shipments)";
        self.with(|shop| shop.query_one(sql, [], |row| Ok((row.get(0)?, row.get(1)?))))
    }

    /// Compares the token and writes in one transaction, so that no other write comes between.
    fn fenced(
        &self,
        fence: &str,
        token: FencingToken,
        write: impl FnOnce(&Transaction<'_>) -> Result<usize>,
    ) -> Result<bool> {
        self.with(|shop| {
            let transaction = shop.transaction_with_behavior(Immediate)?;
            let fresh = transaction.execute(FENCE, (fence, token.get()))? == 1;
            if fresh {
                write(&transaction)?;
            }
            transaction.commit()?;
            Ok(fresh)
        })
    }

    /// Runs a call that blocks its thread. The runtime moves its other tasks to other threads.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        tokio::task::block_in_place(|| {
            work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }
}
