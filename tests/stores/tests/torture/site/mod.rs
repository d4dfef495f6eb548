//! Stores on servers of our own, which can be hurt.
//!
//! Each topology says what can be done to it, and what the documentation gives up because of that.
//! Two faults at once are nobody's promise: one is healed before the next.

mod clock;
mod cluster;
mod deposed;
mod ensemble;
mod folder;
mod galera;
mod quorum;
mod redis;
mod sentinel;
mod server;
mod sql;
pub(crate) mod trials;
mod zookeeper;

use std::{
    io::{self, Write as _},
    ops::RangeInclusive,
    time::Duration,
};

use libtest_mimic::Failed;
use lockkit_fixture::{NamespacedEnsemble, SqlFlavor, mysql_is_there, valkey_server};
use lockkit_torture::site::{ServerFault, Site};

/// Starts the servers of a topology; they end with the site.
pub(crate) type Start = fn() -> Result<Box<dyn Site>, Failed>;

/// Every topology that can be had here, by name. What can't is said on standard error.
pub(crate) fn all() -> Vec<(&'static str, Start)> {
    let mut all: Vec<(&'static str, Start)> = vec![
        ("file", || folder::start()),
        ("redis", || redis::durable()),
        ("redis-volatile", || redis::volatile()),
        ("redis-clock", || redis::clock()),
        ("redis-sentinel", || sentinel::start(sentinel::Wait::Never)),
        ("redis-sentinel-wait", || sentinel::start(sentinel::Wait::ForAll)),
        ("redis-cluster", || cluster::start()),
        ("zookeeper", || zookeeper::start(zookeeper::Queue::Fair)),
        ("zookeeper-unfair", || zookeeper::start(zookeeper::Queue::Unfair)),
        ("zookeeper-ensemble", || ensemble::start()),
        ("mariadb", || sql::start(SqlFlavor::MariaDb, sql::Strategy::Optimistic)),
        ("mariadb-pessimistic", || sql::start(SqlFlavor::MariaDb, sql::Strategy::Pessimistic)),
        ("mariadb-strict", || sql::start(SqlFlavor::MariaDb, sql::Strategy::Strict)),
        ("mariadb-clock", || sql::clock(SqlFlavor::MariaDb)),
        ("galera", || galera::start()),
        ("quorum", || quorum::of_redis()),
        ("quorum-mixed", || quorum::mixed()),
    ];
    match NamespacedEnsemble::is_possible() {
        Ok(()) => all.push(("zookeeper-deposed", || deposed::start())),
        Err(reason) => left_out("zookeeper-deposed", &reason),
    }
    match valkey_server() {
        Some(_) => all.push(("valkey", || redis::valkey())),
        None => left_out("valkey", "there is no valkey-server"),
    }
    match mysql_is_there() {
        Ok(()) => {
            let mysql: [(_, Start); 3] = [
                ("mysql", || sql::start(SqlFlavor::MySql, sql::Strategy::Optimistic)),
                ("mysql-clock", || sql::clock(SqlFlavor::MySql)),
                ("mysql-pessimistic", || sql::start(SqlFlavor::MySql, sql::Strategy::Pessimistic)),
            ];
            all.extend(mysql);
        }
        Err(reason) => left_out("mysql", &reason),
    }
    all
}

/// Says it past any capture of a test's output.
fn left_out(what: &str, reason: &str) {
    // Nobody can do anything about a warning that can't be written.
    let _ = writeln!(io::stderr(), "\nWARNING, LEFT OUT: {what}: {reason}\n");
}

/// One that is healed after a while.
fn lasting(kind: &'static str, ms: RangeInclusive<u64>) -> ServerFault {
    let lasts = Duration::from_millis(*ms.start())..=Duration::from_millis(*ms.end());
    ServerFault { kind, lasts, weakens: None }
}

/// One that leaves nothing to heal.
fn momentary(kind: &'static str) -> ServerFault {
    lasting(kind, 0..=0)
}

/// One for which the documentation gives up exclusion, in these words.
fn weak(fault: ServerFault, words: &'static str) -> ServerFault {
    ServerFault { weakens: Some(words), ..fault }
}

/// One of so many, by a random number.
fn choose(chance: u64, count: usize) -> usize {
    let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
    usize::try_from(chance % count).unwrap_or_default()
}

/// The namespaces of a site's rounds. Its servers are nobody else's, so a number is enough.
#[derive(Debug, Default)]
struct Rounds(u32);

impl Rounds {
    fn next(&mut self) -> String {
        self.0 += 1;
        self.now()
    }

    fn now(&self) -> String {
        format!("round{}", self.0)
    }
}
