//! Locks in a program without async code. Threads compete for one lock, an operator takes it from
//! its holder, and the holder stops.
//!
//! `cargo run --features blocking --example blocking` runs on the embedded memory store, or on the
//! store of its argument, a URL.

use std::{
    env,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use lockkit::{
    ErrorKind, Released, Result,
    blocking::{self, LockGuard, Locker},
};

const THREADS: u64 = 4;
const TURNS: u64 = 5;

/// Adds up without an atomic addition, so two holders at once would lose a turn.
fn take_turns(locker: &Locker, sum: &AtomicU64) -> Result<()> {
    let mutex = locker.mutex("blocking/sum")?;
    for _ in 0..TURNS {
        mutex.scope(|hold| {
            let before = sum.load(Relaxed);
            thread::sleep(Duration::from_millis(5)); // the work
            sum.store(before + 1, Relaxed);
            println!("turn {} had the token {}", before + 1, hold.fencing_token());
        })?;
    }
    Ok(())
}

fn compete(locker: &Locker) -> Result<()> {
    let sum = AtomicU64::new(0);
    thread::scope(|scope| {
        let turns = || take_turns(locker, &sum);
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(turns)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    assert_eq!(sum.into_inner(), THREADS * TURNS, "turns were lost");
    Ok(())
}

/// Works in small steps, and looks between two steps whether the lock is lost.
fn work_until_lost(guard: &LockGuard) -> Result<()> {
    let lost = guard.lost();
    loop {
        if let Some(reason) = lost.wait_timeout(Duration::from_millis(20))? {
            println!("the work stopped: {reason}");
            return Ok(());
        }
        let _ = guard.renew(); // finds a loss at once; otherwise the next renewal finds it
    }
}

fn main() -> Result<()> {
    let url = env::args().nth(1).unwrap_or_else(|| "memory://".to_owned());
    let locker = blocking::connect(&url)?;
    compete(&locker)?;

    let guard = locker.mutex("blocking/job")?.lock_timeout(Duration::from_secs(30))?;
    let operator = locker.as_async(); // block_on runs the calls that only the async locker has
    let freeing = operator.force_release(guard.name(), guard.fencing_token());
    assert_eq!(locker.block_on(freeing)?, Released::Freed);
    work_until_lost(&guard)?;
    assert!(!guard.is_held());
    assert_eq!(guard.release().unwrap_err().kind(), ErrorKind::Lost);
    locker.shutdown()
}
