//! Workers compete for one lock and update one record, which refuses stale tokens.
//!
//! `cargo run --example quickstart` runs on the embedded memory store, `cargo run --features file
//! --example quickstart -- file:///tmp/locks 100` on files with 100 turns for each worker.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, process};

use lockkit::{FencingToken, LockGuard, Locker, Lost, Result};

/// The resource that the lock protects. It compares tokens, as a table with a token column would.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    value: u64,
    largest: Option<FencingToken>,
    holder: Option<Lost>,
    violations: u32,
}

impl Record {
    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a violation if the previous holder does not know that it lost the lock.
    fn enter(&self, guard: &LockGuard) {
        let before = self.with(|state| state.holder.replace(guard.lost()));
        let is_held = before.is_some_and(|before| !before.is_lost());
        self.with(|state| state.violations += u32::from(is_held));
    }

    /// Refuses a token smaller than the largest one seen.
    fn write(&self, token: FencingToken) -> bool {
        self.with(|state| {
            let fresh = state.largest.is_none_or(|largest| token >= largest);
            state.value += u64::from(fresh);
            state.largest = state.largest.max(Some(token));
            fresh
        })
    }
}

async fn worker(name: &str, turns: u64, locker: Locker, record: Record) -> Result<()> {
    for _ in 0..turns {
        let asked = Instant::now();
        let guard = locker.mutex("quickstart/record")?.lock().await?;
        let token = guard.fencing_token();
        let waited = asked.elapsed().as_millis();
        record.enter(&guard);
        tokio::time::sleep(Duration::from_millis(30)).await; // the work
        let wrote = record.write(token);
        record.with(|state| {
            state.holder = None;
            state.violations += u32::from(!wrote);
        });
        let process = process::id();
        println!("{name} of {process} held the lock with token {token}, waited {waited} ms");
        guard.release().await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let turns = env::args().nth(2).map_or(3, |turns| turns.parse().expect("a number of turns"));
    let locker = lockkit::connect(&url).await?;
    let record = Record::default();
    let work = |name| worker(name, turns, locker.clone(), record.clone());
    tokio::try_join!(work("anna"), work("ben "), work("cleo"), work("dora"))?;
    locker.shutdown().await?;
    let (value, violations) = record.with(|state| (state.value, state.violations));
    println!("{value} writes on {}, {violations} violations", locker.descriptor().name);
    assert_eq!((value, violations), (4 * turns, 0));
    Ok(())
}
