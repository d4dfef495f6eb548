//! Counts the core's heap allocations. The counts are the same on each machine and in each profile.

#[path = "../benches/support/instant.rs"]
mod instant;

use std::time::Duration;

use allocation_counter::measure;
use lockkit_core::{
    LockGuard, LockName, Locker, OwnerId,
    spi::Released,
    spi::{Backend, ClaimSpec, Mode, Wait},
};
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn pair(locker: &Locker, name: &str) {
    locker.mutex(name).unwrap().lock().await.unwrap().release().await.unwrap();
}

async fn bare_pair(backend: &dyn Backend, name: LockName) {
    let spec = ClaimSpec::new(name, OwnerId::new(1), Mode::Exclusive, TTL, TTL / 10);
    let mut claim = backend.claim(spec).unwrap();
    claim.attempt(Wait::Queue).await.unwrap();
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// The core makes three allocations: the state of the hold, the attempt and the release. Each of
/// them may move to the background task. The store makes three: the claim and its two futures.
#[test]
fn a_lock_and_its_release_allocate_six_times() {
    let runtime = runtime();
    let locker = Locker::new(instant::Instant::default());
    let mutex = locker.mutex("orders/42").unwrap();
    let lock_and_release = async || mutex.lock().await.unwrap().release().await.unwrap();
    runtime.block_on(pair(&locker, "orders/42")); // the keeper, and what is made once
    for _ in 0..100 {
        let took = measure(|| runtime.block_on(lock_and_release()));
        assert_eq!((took.count_total, took.count_current), (6, 0), "{took:?}");
    }
    let backend = instant::Instant::default();
    let bare = measure(|| runtime.block_on(bare_pair(&backend, mutex.name().clone())));
    assert_eq!(bare.count_total, 3);
}

/// A `try_lock` while another task of this process holds the lock.
#[test]
fn a_refused_try_allocates_twice() {
    let runtime = runtime();
    let locker = Locker::new(instant::Instant::default());
    let mutex = locker.mutex("orders/42").unwrap();
    let guard = runtime.block_on(mutex.lock()).unwrap();
    let took = measure(|| assert!(runtime.block_on(mutex.try_lock()).unwrap().is_none()));
    assert_eq!((took.count_total, took.count_current), (2, 0), "{took:?}");
    runtime.block_on(guard.release()).unwrap();
}

/// The allocator's overhead for each allocation, at most.
const OVERHEAD: u64 = 16;

fn bytes_each(guards: u32) -> u64 {
    let runtime = runtime();
    let locker = Locker::new(instant::Instant::default());
    runtime.block_on(pair(&locker, "orders/42"));
    let mut held: Vec<LockGuard> = Vec::new();
    let took = measure(|| {
        held = Vec::with_capacity(guards.try_into().unwrap());
        for n in 0..guards {
            let mutex = locker.mutex(&format!("name {n:06}")).unwrap();
            held.push(runtime.block_on(mutex.lock()).unwrap());
        }
    });
    let bytes = u64::try_from(took.bytes_current).unwrap();
    let pieces = u64::try_from(took.count_current).unwrap();
    // The memory of the claim belongs to the store.
    let claim = u64::try_from(size_of::<Duration>()).unwrap() + OVERHEAD;
    (bytes + pieces * OVERHEAD) / u64::from(guards) - claim
}

/// With this number of guards the table of the gates is as full as with eight times as many.
#[test]
fn a_guard_of_100_000_takes_512_bytes_at_most() {
    let bytes = bytes_each(12_500);
    assert!(bytes <= 512, "{bytes} bytes");
}

/// With this number of guards that table has just doubled, so no other number of guards takes more.
/// The tree of the timers takes a little more or less, because the renewals are spread at random:
/// 544 or 545 bytes were measured.
#[test]
fn a_guard_takes_552_bytes_at_most() {
    let bytes = bytes_each(14_400);
    assert!(bytes <= 552, "{bytes} bytes");
}
