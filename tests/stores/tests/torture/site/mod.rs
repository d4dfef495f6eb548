//! Stores on servers of this program, which it can disturb.
//!
//! Each topology lists its faults, and the promises that the documentation gives up because of
//! them. No promise covers two faults at once, so one fault is healed before the next.

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

/// Every topology that this machine can run, by name. Standard error names those that it can't run.
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

/// Writes a warning that a test's output capture does not hide.
fn left_out(what: &str, reason: &str) {
    // A warning that can't be written has no remedy.
    let _ = writeln!(io::stderr(), "\nWARNING: SKIPPED {what}: {reason}\n");
}

/// A fault that is healed after a while.
fn lasting(kind: &'static str, ms: RangeInclusive<u64>) -> ServerFault {
    let lasts = Duration::from_millis(*ms.start())..=Duration::from_millis(*ms.end());
    ServerFault { kind, lasts, weakens: None }
}

/// A fault that leaves nothing to heal.
fn momentary(kind: &'static str) -> ServerFault {
    lasting(kind, 0..=0)
}

/// A fault for which the documentation gives up exclusion, in these words.
fn weak(fault: ServerFault, words: &'static str) -> ServerFault {
    ServerFault { weakens: Some(words), ..fault }
}

/// Chooses one of this many by a random number.
fn choose(chance: u64, count: usize) -> usize {
    let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
    usize::try_from(chance % count).unwrap_or_default()
}

/// The namespaces of a site's rounds. No other program uses its servers, so a number is enough.
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
