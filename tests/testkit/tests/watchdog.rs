//! A server does not outlive the process that started it.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use lockkit_fixture::is_alive;
use tempfile::TempDir;

#[test]
fn a_server_dies_when_its_holder_is_killed() {
    // A killed holder can't remove the server's folder.
    let folder = TempDir::new().unwrap();
    let mut holder = Command::new(env!("CARGO_BIN_EXE_lockkit-test-redis"))
        .env("TMPDIR", folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (_, pid) = line.trim().split_once(' ').unwrap();
    assert!(is_alive(pid));

    holder.kill().unwrap();
    holder.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_alive(pid) {
        assert!(Instant::now() < deadline, "the server lives on");
        thread::sleep(Duration::from_millis(1));
    }
}
