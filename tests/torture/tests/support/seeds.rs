//! Runs many seeds on two threads.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
};

const THREADS: u64 = 2;

/// Calls `work` with each seed, roughly in order, until `work` returns false.
pub(crate) fn in_parallel(seeds: Range<u64>, work: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(seeds.start);
    let enough = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= seeds.end || enough.load(Relaxed) {
                        return;
                    }
                    if !work(seed) {
                        enough.store(true, Relaxed);
                    }
                }
            });
        }
    });
}
