//! Tests of blocking calls, on the real clock.

mod ends;
mod locks;
mod loss;
mod refused;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::Locker;
use crate::fake::{Fake, Kind, Store};

const MINUTE: Duration = Duration::from_secs(60);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A fake store, and a locker over it in which each thread talks to the store by itself.
fn world(kind: Kind) -> (Arc<Store>, Locker) {
    let store = Store::new(0);
    let fake = Arc::new(Fake::new(Arc::clone(&store), kind));
    let locker = crate::Locker::builder(fake).build().with_process_gate(false);
    (store, Locker::new(locker).unwrap())
}

/// Waits for a condition, because a busy machine may need long.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < MINUTE, "not within a minute: {what}");
        thread::sleep(ms(1));
    }
}

/// Waits until neither a holder nor a waiter is left in the store.
fn until_clean(store: &Store) {
    until("nothing is left", || store.holders() + store.queued() + store.live_claims() == 0);
}
