//! One pool for a program and its locks, and a lock inside a transaction of the program.
//!
//! `cargo run -p lockkit-mysql --example own_transaction -- mysql://user:password@127.0.0.1/db`

use std::{env, error::Error, sync::Arc};

use lockkit_core::Locker;
use lockkit_mysql::{
    Config, MySql, Strategy,
    mysql_async::{Opts, Pool, TxOpts, prelude::Queryable as _},
};
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const LOCK: &str = "stock/4711";
const PIECES: u64 = 20;

/// Sells a piece, if one is left. The lock lasts until the end of the transaction, so no other
/// clerk sees the stock between the look and the change.
async fn sell(pool: &Pool, store: &MySql) -> Result<bool> {
    let mut transaction = pool.start_transaction(TxOpts::default()).await?;
    let token = store.lock_in_transaction(&mut transaction, LOCK).await?;
    let left: Option<u64> = transaction.query_first("SELECT pieces FROM example_stock").await?;
    // A dropped transaction is rolled back.
    let Some(left @ 1..) = left else { return Ok(false) };
    transaction.query_drop(format!("UPDATE example_stock SET pieces = {}", left - 1)).await?;
    transaction.query_drop(format!("INSERT INTO example_sale VALUES ({token})")).await?;
    transaction.commit().await?;
    Ok(true)
}

/// Fills the stock, on any connection, while a guard holds the same lock.
async fn fill(pool: &Pool, locker: &Locker) -> Result<()> {
    let guard = locker.mutex(LOCK)?.lock().await?;
    let mut conn = pool.get_conn().await?;
    for statement in [
        "CREATE TABLE IF NOT EXISTS example_stock (pieces BIGINT UNSIGNED) ENGINE=InnoDB",
        "CREATE TABLE IF NOT EXISTS example_sale (token BIGINT UNSIGNED PRIMARY KEY) ENGINE=InnoDB",
        "DELETE FROM example_stock",
        "DELETE FROM example_sale",
    ] {
        conn.query_drop(statement).await?;
    }
    conn.query_drop(format!("INSERT INTO example_stock VALUES ({PIECES})")).await?;
    guard.release().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).ok_or("give the URL of a database: mysql://user@host/database")?;
    let opts = Opts::from_url(&url)?;
    let database = opts.db_name().ok_or("the URL names no database")?.to_owned();
    let pool = Pool::new(opts);
    let config = Config::from_pool(pool.clone(), database)
        .with_strategy(Strategy::Pessimistic)
        .with_table_prefix("lockkit_example")?;
    let store = Arc::new(MySql::connect(config).await?);
    let locker = Locker::builder(Arc::<MySql>::clone(&store)).build();
    fill(&pool, &locker).await?;
    let mut clerks = JoinSet::new();
    for _ in 0..5 {
        let pool = pool.clone();
        let store = Arc::clone(&store);
        clerks.spawn(async move {
            while sell(&pool, &store).await? {}
            Result::Ok(())
        });
    }
    while let Some(clerk) = clerks.join_next().await {
        clerk??;
    }
    let sales = "SELECT COUNT(*) FROM example_sale";
    let sales: Option<u64> = pool.get_conn().await?.query_first(sales).await?;
    assert_eq!(sales, Some(PIECES), "a piece was lost, or sold twice");
    locker.shutdown().await?;
    pool.disconnect().await?;
    Ok(())
}
