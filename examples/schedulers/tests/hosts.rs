//! Tests three hosts as real processes, with each of both schedulers. One is killed during a tick.

use std::{collections::BTreeSet, iter, process::Command};

use lockkit_fixture::Crowd;
use tempfile::TempDir;

const HOSTS: usize = 3;
const MOST_KILLS: usize = 5;
const BEGINS: &str = "begins under token ";
const DONE: &str = "done here";

#[test]
fn c9_with_apalis_each_tick_runs_on_one_host_and_another_takes_over_after_a_kill() {
    one_runs(env!("CARGO_BIN_EXE_apalis"));
}

#[test]
fn c9_with_tokio_cron_scheduler_each_tick_runs_on_one_host_and_another_takes_over_after_a_kill() {
    one_runs(env!("CARGO_BIN_EXE_tokio-cron-scheduler"));
}

/// Catches hosts that give a tick different numbers, a job without the lock, and a program that
/// forgets the run of a dead host.
fn one_runs(program: &str) {
    assert!(
        (0..MOST_KILLS).any(|_| a_killed_host_is_followed(program)),
        "each kill came after the end of its tick, or the other hosts missed that tick"
    );
}

/// Kills a host during its tick, and checks what the others do. Returns `false` if the machine was
/// too busy. Then the tick had already ended. Or the others missed it, and learn at a later tick
/// that it was not finished.
fn a_killed_host_is_followed(program: &str) -> bool {
    let folder = TempDir::new().unwrap();
    let host = || {
        let mut command = Command::new(program);
        command.arg(format!("file://{}", folder.path().display()));
        command
    };
    let mut crowd = Crowd::start(iter::repeat_with(host).take(HOSTS)).unwrap();
    let mut begun = BTreeSet::new();
    let (killed, lost) = loop {
        let (number, tick, said) = hear(&crowd);
        if said.starts_with(BEGINS) {
            assert!(begun.insert(tick), "tick {tick} begins on {number}, too");
        }
        if begun.len() == 2 {
            break (number, tick);
        }
    };
    let dead = crowd.id(killed);
    crowd.kill(killed).unwrap();
    // One of the others takes this tick over.
    begun.remove(&lost);
    let report = format!("process {dead} did not finish tick {lost}");
    let finished = format!("done by process {dead}");
    let mut is_reported = false;
    let mut done = BTreeSet::new();
    while done.len() < 3 {
        let (number, tick, said) = hear(&crowd);
        if tick == lost && (said == finished || number == killed && said == DONE) {
            return false;
        }
        if tick > lost && said == report {
            return false;
        }
        if said.starts_with(BEGINS) {
            assert!(begun.insert(tick), "tick {tick} begins on {number}, too");
        }
        is_reported |= tick == lost && said == report;
        if tick >= lost && said == DONE {
            done.insert(tick);
        }
    }
    assert!(is_reported, "the next host learns that tick {lost} was not finished");
    assert!(done.contains(&lost), "tick {lost} is taken over");
    true
}

/// The next line of a host: its number, the tick, and what it says of that.
fn hear(crowd: &Crowd) -> (usize, u64, String) {
    let (number, line) = crowd.hear().unwrap();
    let (tick, said) = line.split_once(": ").unwrap_or_else(|| panic!("host {number}: {line}"));
    let tick = tick.strip_prefix("tick ").and_then(|tick| tick.parse().ok());
    (number, tick.unwrap_or_else(|| panic!("host {number}: {line}")), said.to_owned())
}
