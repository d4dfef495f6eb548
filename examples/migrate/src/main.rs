//! A service whose replicas start together. One of them migrates the database, the others wait, and
//! none starts with the old schema.
//!
//! Start it several times: `cargo run -p lockkit-example-migrate`. The arguments are the URL of any
//! store, the file of the database, and for how many milliseconds each migration works. `sqlx` and
//! `refinery` can take the place of the list of migrations in `database.rs`.

mod database;

use std::{env, error::Error, fs, path::PathBuf, time::Duration};

use lockkit::Locker;

use crate::database::Database;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut words = env::args().skip(1);
    let folder = PathBuf::from("/var/tmp/lockkit-example-migrate");
    fs::create_dir_all(&folder)?;
    let url = words.next().unwrap_or_else(|| format!("file://{}/locks", folder.display()));
    let file = words.next().map_or_else(|| folder.join("shop.db"), Into::into);
    let work = words.next().map_or(Ok(1_000), |millis| millis.parse())?;
    let mut database = Database::open(file, Duration::from_millis(work))?;
    let locker = lockkit::connect(&url).await?;
    migrate(&locker, &mut database).await?;
    // From here on the schema is the newest one. A service would begin to listen.
    println!("serves with schema {}, {} cents", database.version()?, database.cents()?);
    Ok(locker.shutdown().await?)
}

/// Waits for its turn, and applies the migrations that are missing. If the lock is lost, this is an
/// error, and the replica does not start.
async fn migrate(locker: &Locker, database: &mut Database) -> Result<(), Failure> {
    locker.mutex("example/migrate")?.scope(|_| database.migrate()).await??;
    Ok(())
}
