//! Threads whose runtimes start and end, over one store and with two lockers, on the real clock.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rand::random_range;
use tokio::time;

use super::{
    ms,
    runtimes::{single, threads},
    secs,
};
use crate::{
    Locker, error::ErrorKind, fake::lock, guard::LockGuard, memory::Memory, options::LockOptions,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The largest token that was used under each name, as a protected resource keeps it.
type Seen = Arc<[Mutex<u64>; 3]>;

/// Shorter than a thread may have to wait for the processor: a lease may end before its holder
/// learns of it.
const SHORT: Duration = ms(10);
/// A shutdown waits for three of these. After that, only claims that no task works on are left.
const LONG: Duration = secs(3);
const SOON: Duration = secs(30);

#[test]
fn c1_c6_runtimes_that_come_and_go_break_nothing_and_leave_nothing() {
    for ttl in [SHORT, LONG] {
        let memory = Memory::new();
        let lockers = [(); 2].map(|()| {
            Locker::new(memory.clone()).with_defaults(LockOptions::new().with_ttl(ttl)).unwrap()
        });
        let seen = Seen::default();
        let start = Instant::now();
        let workers = [0, 0, 0, 1].map(|at| {
            let locker = lockers[at].clone();
            let seen = Arc::clone(&seen);
            thread::spawn(move || {
                while start.elapsed() < ms(700) || (!all_used(&seen) && start.elapsed() < SOON) {
                    let runtime = if random_range(0..2) == 0 { single() } else { threads() };
                    runtime.block_on(work(&locker, &seen, ttl));
                    if random_range(0..2) == 0 {
                        runtime.shutdown_background();
                    }
                }
            })
        });
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        single().block_on(async {
            for locker in &lockers {
                time::timeout(SOON, locker.shutdown()).await.expect("an end").unwrap();
                // Three short ttls, for which a shutdown waits, may be shorter than one turn of a
                // thread.
                let late = Instant::now() + if ttl == SHORT { SOON } else { Duration::ZERO };
                while locker.keeper.locker().live_claims() > 0 {
                    assert!(Instant::now() < late, "claims of the {ttl:?} are left");
                    time::sleep(ms(1)).await;
                }
            }
        });
        assert!(memory.is_empty());
        assert!(all_used(&seen));
    }
}

fn all_used(seen: &Seen) -> bool {
    seen.iter().all(|token| *lock(token) > 0)
}

async fn work(locker: &Locker, seen: &Seen, ttl: Duration) {
    for _ in 0..random_range(0..60) {
        let at = random_range(0..NAMES.len());
        let mutex = locker.mutex(NAMES[at]).unwrap();
        let asked = match random_range(0..4) {
            0 => mutex.try_lock().await,
            1 => time::timeout(ms(random_range(0..4)), mutex.lock()).await.ok().transpose(),
            2 => mutex.lock_timeout(ms(random_range(0..20))).await.map(Some),
            _ => time::timeout(SOON, mutex.lock()).await.expect("no hang").map(Some),
        };
        let guard = match asked {
            Err(error) if error.kind() == ErrorKind::Timeout => None,
            Err(error) if ttl == SHORT && error.kind() == ErrorKind::Unavailable => None,
            asked => asked.unwrap(),
        };
        if let Some(guard) = guard {
            touch(&guard, &seen[at]);
            give_back(guard).await;
        }
    }
}

fn touch(guard: &LockGuard, resource: &Mutex<u64>) {
    let mut newest = lock(resource);
    let token = guard.fencing_token().get();
    let stale = token <= *newest;
    *newest = token.max(*newest);
    assert!(!stale || !guard.is_held(), "somebody else had it since");
}

async fn give_back(guard: LockGuard) {
    match random_range(0..4) {
        0 => drop(guard),
        1 => _ = guard.renew().await,
        2 => _ = time::timeout(ms(0), guard.release()).await,
        _ => _ = guard.release().await,
    }
}
