//! A shop with three services and one table of its stock. It must never sell more than it has.
//!
//! Without a lock the shop sells too much, and with a lock it does not. With a fencing token in the
//! table, it is even correct if a service pauses past its lease.
//!
//! `cargo run --package lockkit-example-service --example inventory` runs on the embedded memory
//! store, or on the store of its argument, a URL. On files a lock has no lease, so the example
//! leaves out the part with the pause.

use std::{env, time::Duration};

use lockkit::{ErrorKind, FencingToken, LockOptions, Locker, Mutex, Renewal, Result};
use rusqlite::{Connection, params};
use tokio::time::sleep;

const STOCK: &str =
    "CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, pieces INTEGER, token INTEGER);
    INSERT OR REPLACE INTO stock VALUES ('teapot', 10, 0)";
/// This is all that fencing needs: the statement changes no row that has seen a larger token.
const WRITE: &str =
    "UPDATE stock SET pieces = ?1, token = ?2 WHERE item = 'teapot' AND token <= ?2";

/// One of the services, with its own connection.
struct Service(Connection);

impl Service {
    fn pieces(&self) -> u64 {
        let sql = "SELECT pieces FROM stock WHERE item = 'teapot'";
        self.0.query_one(sql, [], |row| row.get(0)).expect("there are teapots")
    }

    /// Returns false if the table refused the write.
    fn write(&self, pieces: u64, token: FencingToken) -> bool {
        self.0.execute(WRITE, params![pieces, token.get()]).expect("SQLite takes changes") == 1
    }

    /// Serves five customers, and returns how many got a teapot.
    async fn serve(&self, lock: Option<&Mutex>) -> Result<u64> {
        let mut sold = 0;
        for _ in 0..5 {
            let guard = if let Some(lock) = lock { Some(lock.lock().await?) } else { None };
            let token = guard.as_ref().map_or(FencingToken::new(0), |guard| guard.fencing_token());
            let pieces = self.pieces();
            sleep(Duration::from_millis(5)).await; // the customer pays
            sold += u64::from(pieces > 0 && self.write(pieces - 1, token));
            drop(guard);
        }
        Ok(sold)
    }
}

/// Reads the stock under the lock, pauses for longer than its lease, and then writes its old
/// result.
async fn paused(slow: &Service, quick: &Service, locker: &Locker) -> Result<()> {
    let ttl = Duration::from_millis(300).max(locker.descriptor().min_ttl);
    let options = LockOptions::new().with_ttl(ttl).with_renewal(Renewal::Manual);
    let lock = locker.mutex("stock/teapot")?;
    let guard = lock.clone().with_options(options)?.lock().await?;
    let pieces = slow.pieces();
    println!("one service saw {pieces} teapots, paused, and lost its lock: {}", guard.lost().await);
    let sold = quick.serve(Some(&lock)).await?;
    assert!(!slow.write(pieces - 1, guard.fencing_token()), "the table accepted a stale token");
    println!(
        "the table refused its late write of {}, because {sold} were sold meanwhile",
        pieces - 1
    );
    assert_eq!(quick.pieces(), pieces - sold);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let services =
        [(); 3].map(|()| Service(Connection::open(file.path()).expect("SQLite opens it")));
    let [a, b, c] = &services;
    let lock = locker.mutex("stock/teapot")?;
    for (how, lock) in [("without a lock", None), ("with a lock", Some(&lock))] {
        a.0.execute_batch(STOCK).expect("a new stock");
        let (a, b, c) = tokio::try_join!(a.serve(lock), b.serve(lock), c.serve(lock))?;
        println!("{how}, the shop sold {} of 10 teapots", a + b + c);
        assert_eq!(a + b + c > 10, lock.is_none());
    }
    a.0.execute_batch(STOCK).expect("a new stock");
    if !locker.descriptor().exceptions.no_lease {
        paused(a, b, &locker).await?;
    }
    locker.shutdown().await
}
