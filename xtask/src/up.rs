//! Serves a store for trying things out.

use anyhow::{Context, Result};
use clap::ValueEnum;
use lockkit_fixture::RedisServer;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::install;

/// A store that can be served.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Store {
    Redis,
}

/// Serves an empty store until Ctrl-C. Its data goes with it.
///
/// # Errors
/// The server is not installed and can't be, or does not start.
pub(crate) fn run(store: Store) -> Result<()> {
    // First of all: a signal that comes while the server starts must end it, too.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("can't watch for Ctrl-C")?;
    install::servers()?;
    let (name, feature, server) = match store {
        Store::Redis => ("Redis", "redis", RedisServer::start()?),
    };
    let url = server.url();
    println!("{name} is up, until Ctrl-C:\n  {url}");
    println!("In another terminal:\n  cargo run --example quickstart --features {feature} -- {url}");
    signals.forever().next();
    drop(server);
    println!("\n{name} is down");
    Ok(())
}
