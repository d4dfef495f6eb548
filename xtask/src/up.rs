//! Serves a store for experiments.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use lockkit_fixture::{RedisServer, SqlFlavor, SqlServer, ZooKeeperServer};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    install,
    mysql::{self, Availability},
    server,
};

/// A store that this program can serve.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Store {
    #[value(name = "mariadb")]
    MariaDb,
    #[value(name = "mysql")]
    MySql,
    Redis,
    #[value(name = "zookeeper", alias = "zk")]
    ZooKeeper,
}

/// Serves an empty store until Ctrl-C, and then deletes its data.
///
/// # Errors
/// The server is missing and can't be installed, or does not start.
pub(crate) fn run(store: Store) -> Result<()> {
    // This comes first, because a signal must also end a server that is still starting.
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).context("could not watch for Ctrl-C")?;
    match store {
        Store::MariaDb => {
            install::servers(server::FOR_MARIADB)?;
            let server = SqlServer::start(SqlFlavor::MariaDb)?;
            serve(&mut signals, "MariaDB", "mysql", &server.url());
        }
        Store::MySql => {
            if let Availability::Missing(reason) = mysql::offer()? {
                bail!("could not install MySQL: {reason}");
            }
            let server = SqlServer::start(SqlFlavor::MySql)?;
            serve(&mut signals, "MySQL", "mysql", &server.url());
        }
        Store::Redis => {
            install::servers(server::FOR_REDIS)?;
            let server = RedisServer::start()?;
            serve(&mut signals, "Redis", "redis", &server.url());
        }
        Store::ZooKeeper => {
            install::servers(server::FOR_ZOOKEEPER)?;
            let server = ZooKeeperServer::start()?;
            serve(&mut signals, "ZooKeeper", "zk", &server.url());
        }
    }
    Ok(())
}

/// Prints the URL of the server, and returns when it must end.
fn serve(signals: &mut Signals, name: &str, feature: &str, url: &str) {
    println!("{name} runs until Ctrl-C:\n  {url}");
    println!(
        "In another terminal:\n  cargo run --example quickstart --features {feature} -- {url}"
    );
    signals.forever().next();
    println!("\nstopping {name}");
}
