//! Measures one name that goes from task to task of a process: each grant is a release, a transfer
//! and a wake-up.

mod support {
    pub(crate) mod instant;
    pub(crate) mod runtime;
}

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockkit_core::{Locker, Mutex};
use support::runtime::runtimes;
use tokio::task::JoinSet;

/// Lets `tasks` tasks together take the lock `grants` times.
async fn turns(mutex: &Mutex, tasks: u64, grants: u64) -> Duration {
    let mut set = JoinSet::new();
    for task in 0..tasks {
        let mutex = mutex.clone();
        let share = grants / tasks + u64::from(task < grants % tasks);
        set.spawn(async move {
            for _ in 0..share {
                mutex.lock().await.unwrap().release().await.unwrap();
                // Without this, a task that meets no other task would take all its turns alone.
                tokio::task::yield_now().await;
            }
        });
    }
    let start = Instant::now();
    set.join_all().await;
    start.elapsed()
}

fn transfer(c: &mut Criterion) {
    let mut group = c.benchmark_group("grant on a hot name");
    for (threads, runtime) in runtimes() {
        for tasks in [2, 64] {
            // The memory store can transfer the lock; the instant store only frees and grants.
            for (store, locker) in [
                ("memory store", Locker::memory()),
                ("instant store", Locker::new(support::instant::Instant::default())),
            ] {
                let mutex = locker.mutex("orders/42").unwrap();
                let id = BenchmarkId::new(format!("{tasks} tasks, {store}"), threads);
                group.bench_function(id, |b| {
                    b.to_async(&runtime).iter_custom(|grants| turns(&mutex, tasks, grants));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, transfer);
criterion_main!(benches);
