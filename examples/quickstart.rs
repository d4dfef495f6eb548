//! Workers compete for one lock and update one record, which refuses stale tokens.
//!
//! * `cargo run --example quickstart` runs on the embedded memory store.
//! * `cargo run --features file --example quickstart -- file:///var/tmp/locks` runs on files: run it twice at the same time.
//! * `cargo run --features redis --example quickstart -- redis://127.0.0.1/` runs on Redis.
//! * `cargo run --features zk --example quickstart -- zk://127.0.0.1/` runs on ZooKeeper.
//! * `cargo run --features mysql --example quickstart -- mysql://user:password@127.0.0.1/database` runs on MySQL.

use std::{
    env, process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use lockkit::{FencingToken, LockGuard, LockOptions, Locker, Lost, Renewal, Result};

/// What the lock protects. It compares tokens, as a table with a token column would.
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
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a violation if somebody else still holds the lock, and has not been told that it is lost.
    fn enter(&self, guard: &LockGuard) {
        let mut state = self.state();
        let before = state.holder.replace(guard.lost());
        state.violations += u32::from(before.is_some_and(|before| !before.is_lost()));
    }

    /// Refuses a token smaller than the largest one seen.
    fn write(&self, token: FencingToken) -> bool {
        let mut state = self.state();
        let fresh = state.largest.is_none_or(|largest| token >= largest);
        if fresh {
            state.value += 1;
            state.largest = Some(token);
        }
        fresh
    }

    async fn leave(&self, guard: LockGuard) -> Result<()> {
        self.state().holder = None;
        guard.release().await?;
        Ok(())
    }
}

async fn worker(name: &str, locker: Locker, record: Record) -> Result<()> {
    for _ in 0..3 {
        let asked = Instant::now();
        let guard = locker.mutex("quickstart/record")?.lock().await?;
        let (token, waited) = (guard.fencing_token(), asked.elapsed().as_millis());
        record.enter(&guard);
        tokio::time::sleep(Duration::from_millis(30)).await; // the work
        println!(
            "{name:<8} of process {} held the lock with token {token}, waited {waited:>3} ms, wrote: {}",
            process::id(),
            record.write(token)
        );
        record.leave(guard).await?;
    }
    Ok(())
}

/// Stops renewing, as a process does that is paused or cut off, and writes after somebody else did.
async fn sleeper(locker: Locker, record: Record) -> Result<()> {
    let ttl = Duration::from_millis(300).max(locker.descriptor().min_ttl);
    let options = LockOptions::new().with_ttl(ttl).with_renewal(Renewal::Manual);
    let guard = locker.mutex("quickstart/record")?.with_options(options)?.lock().await?;
    let token = guard.fencing_token();
    record.enter(&guard);
    println!("sleeper  holds the lock with token {token} and falls asleep");
    if locker.descriptor().exceptions.no_lease {
        tokio::time::sleep(ttl).await;
        println!(
            "sleeper  kept it, as this store frees a lock only when its process ends: {}",
            record.write(token)
        );
        return record.leave(guard).await;
    }
    println!("sleeper  was told that it lost the lock: {}", guard.lost().await);
    let next = locker.mutex("quickstart/record")?.lock().await?;
    record.enter(&next);
    record.write(next.fencing_token());
    record.leave(next).await?;
    let late = record.write(token);
    record.state().violations += u32::from(late);
    println!("sleeper  wrote late with token {token}: {late}, and releases: {:?}", guard.release().await?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = lockkit::connect(&url).await?;
    let record = Record::default();
    let work = |name| worker(name, locker.clone(), record.clone());
    tokio::try_join!(
        work("anna"),
        work("ben"),
        sleeper(locker.clone(), record.clone()),
        work("cleo"),
        work("dora")
    )?;
    locker.shutdown().await?;
    let state = record.state();
    println!("{} writes on {}, {} violations", state.value, locker.descriptor().name, state.violations);
    assert_eq!(state.violations, 0);
    Ok(())
}
