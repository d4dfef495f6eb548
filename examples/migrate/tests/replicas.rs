//! Tests four replicas as real processes that start together. The one that migrates is killed in
//! the middle of a migration.

use std::{collections::BTreeSet, iter, process::Command};

use lockkit_fixture::{Crowd, RedisServer};
use rusqlite::Connection;
use tempfile::TempDir;

const REPLICAS: usize = 4;
/// How long each migration works. The kill must come before that.
const WORK_MS: &str = "5000";

#[test]
fn c9_on_files_another_replica_migrates_after_a_kill_and_none_starts_with_the_old_schema() {
    let folder = TempDir::new().unwrap();
    let url = format!("file://{}", folder.path().join("locks").display());
    one_migrates(&url, &folder);
}

#[test]
fn c9_on_redis_another_replica_migrates_after_a_kill_and_none_starts_with_the_old_schema() {
    let folder = TempDir::new().unwrap();
    let redis = RedisServer::start().unwrap();
    // A busy machine may need longer than the default to connect.
    one_migrates(&format!("{}?ttl=10s&connect_timeout=30s", redis.url()), &folder);
}

/// Catches a replica that starts with the old schema, a migration that is applied twice, and one
/// that a kill leaves half applied.
fn one_migrates(url: &str, folder: &TempDir) {
    let database = folder.path().join("shop.db");
    let replica = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkit-example-migrate"));
        command.arg(url).arg(&database).arg(WORK_MS);
        command
    };
    let mut crowd = Crowd::start(iter::repeat_with(replica).take(REPLICAS)).unwrap();
    // Nothing is served before the second of three migrations.
    let killed = loop {
        let (number, line) = crowd.hear().unwrap();
        assert!(line.starts_with("migrates to "), "replica {number}: {line}");
        if line == "migrates to 2" {
            break number;
        }
    };
    crowd.kill(killed).unwrap();
    let mut migrating = BTreeSet::new();
    let mut serving = BTreeSet::new();
    while serving.len() < REPLICAS - 1 {
        let (number, line) = crowd.hear().unwrap();
        match line.as_str() {
            "migrates to 2" | "migrates to 3" => _ = migrating.insert(number),
            "serves with schema 3, 1500 cents" => _ = serving.insert(number),
            _ => panic!("replica {number}: {line}"),
        }
    }
    assert!(!serving.contains(&killed), "replica {killed} was killed");
    assert_eq!(migrating.len(), 1, "one replica continues");
    for number in serving {
        crowd.ends(number).unwrap();
    }
    let database = Connection::open(database).unwrap();
    let mut rows = database.prepare("SELECT number FROM applied ORDER BY rowid").unwrap();
    let applied: Vec<u64> =
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(applied, [1, 2, 3], "each migration is applied once");
}
