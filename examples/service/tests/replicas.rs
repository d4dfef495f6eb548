//! Tests two replicas as real processes, one of which leads. If the leader is killed or ends, the
//! other replica leads, and no order is lost.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lockkit_fixture::RedisServer;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// The longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(60);
/// A machine may stall for a part of it.
const TTL: Duration = Duration::from_secs(6);
/// The time that a busy machine needs beyond the lease.
const SLACK: Duration = Duration::from_secs(30);
/// A busy machine may need longer than the default to connect.
const PATIENT: &str = "connect_timeout=30s";

#[test]
fn c9_c4_on_files_another_replica_leads_at_once_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let took = killed_leader(&file_url(&folder), &folder);
    assert!(took < SLACK, "{took:?}");
}

#[test]
fn c9_c4_on_redis_another_replica_leads_after_the_lease_of_a_killed_leader() {
    let folder = TempDir::new().unwrap();
    let mut redis = RedisServer::start().unwrap();
    // A stall would take a part of the lease.
    redis.never_stall();
    let took = killed_leader(&format!("{}?ttl={}s&{PATIENT}", redis.url(), TTL.as_secs()), &folder);
    assert!(took < TTL + SLACK, "{took:?}");
}

/// The leases last longer than the test waits.
#[test]
fn c7_another_replica_leads_at_once_after_an_orderly_stop() {
    let folder = TempDir::new().unwrap();
    let mut redis = RedisServer::start().unwrap();
    redis.never_stall();
    for url in [file_url(&folder), format!("{}?ttl=60s&{PATIENT}", redis.url())] {
        let (mut leader, follower, term) = two_replicas(&url, &folder);
        leader.signal(Signal::SIGTERM);
        let took = follower.leads_after(term);
        assert!(took < SLACK, "{took:?} on {url}");
        assert!(leader.process.wait().unwrap().success());
        assert!(leader.rest().ends_with("ended in order\n"));
    }
}

/// Returns the time until the other replica leads.
fn killed_leader(url: &str, folder: &TempDir) -> Duration {
    let (leader, follower, term) = two_replicas(url, folder);
    thread::scope(|scope| {
        for replica in [&leader, &follower].into_iter().cycle().take(10) {
            scope.spawn(|| replica.order());
        }
    });
    until("some are shipped", || {
        leader.status()?["orders"]["shipped"].as_u64().filter(|shipped| *shipped > 0)
    });
    // Some orders are not shipped yet, and more come in.
    leader.signal(Signal::SIGKILL);
    let took = thread::scope(|scope| {
        let took = scope.spawn(|| follower.leads_after(term));
        (0..5).for_each(|_| follower.order());
        took.join().unwrap()
    });
    until("all are shipped", || {
        follower.status()?["orders"]["shipped"].as_u64().filter(|shipped| *shipped >= 15)
    });
    let database = Connection::open(database(folder)).unwrap();
    let numbers = |sql| -> Vec<u64> {
        let mut rows = database.prepare(sql).unwrap();
        rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let all: Vec<u64> = (1..=15).collect();
    assert_eq!(numbers("SELECT number FROM orders ORDER BY number"), all, "each number once");
    assert_eq!(
        numbers("SELECT number FROM shipments ORDER BY number"),
        all,
        "each order shipped once"
    );
    let terms = numbers("SELECT DISTINCT term FROM shipments ORDER BY rowid");
    assert!(terms.is_sorted() && terms[0] == term, "{term} and then {terms:?}");
    took
}

/// Returns the leader, the other replica, and the term of the leader.
fn two_replicas(url: &str, folder: &TempDir) -> (Replica, Replica, u64) {
    let a = Replica::start(url, &database(folder));
    let b = Replica::start(url, &database(folder));
    let term = until("both replicas know the leader", || {
        let a = a.status()?;
        let b = b.status()?;
        (a["leads"] != b["leads"] && a["term"] == b["term"]).then(|| a["term"].as_u64())?
    });
    if a.status().unwrap()["leads"] == true { (a, b, term) } else { (b, a, term) }
}

fn file_url(folder: &TempDir) -> String {
    format!("file://{}", folder.path().join("locks").display())
}

fn database(folder: &TempDir) -> PathBuf {
    folder.path().join("shop.db")
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < end, "waited too long: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A replica process. Dropping this kills the process.
struct Replica {
    process: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Replica {
    fn start(url: &str, database: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lockkit-example-service"));
        command.args(["127.0.0.1:0", url]).arg(database).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let address =
            line.trim().strip_prefix("listens on http://").and_then(|text| text.strip_suffix('/'));
        let address = address.unwrap_or_else(|| panic!("it does not listen: {line}")).to_owned();
        Self { process, output, address }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.process.id().try_into().unwrap()), signal).unwrap();
    }

    fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    fn status(&self) -> Option<Value> {
        self.ask("GET / HTTP/1.1").filter(|(code, _)| *code == 200).map(|(_, body)| body)
    }

    /// Orders until the replica takes the order. It refuses one if a slow disk makes it wait.
    fn order(&self) {
        until("an order is taken", || {
            let (code, body) = self.ask("POST /orders HTTP/1.1").expect("an answer");
            assert!(code == 201 || code == 503, "{code}: {body}");
            (code == 201).then_some(())
        });
    }

    fn leads_after(&self, term: u64) -> Duration {
        let start = Instant::now();
        until("the other replica leads", || {
            let status = self.status()?;
            (status["leads"] == true && status["term"].as_u64()? > term).then_some(())
        });
        start.elapsed()
    }

    /// Returns status code and body, or `None` without an answer.
    fn ask(&self, request: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(stream, "{request}\r\nHost: shop\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let code = head.split(' ').nth(1)?.parse().ok()?;
        Some((code, serde_json::from_str(body).unwrap_or_else(|_| body.into())))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // The process may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
