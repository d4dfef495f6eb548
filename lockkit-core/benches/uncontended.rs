//! Measures the cost of the core itself: lock and release over a store that answers at once, beside
//! the bare claim calls.
//!
//! Criterion runs the two one after the other. Compare the two figures of one run, never figures of
//! two runs.

mod support {
    pub(crate) mod bare;
    pub(crate) mod instant;
    pub(crate) mod runtime;
}

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockkit_core::{
    Kind, LockName, Locker,
    spi::Released,
    spi::{Backend, Mode, Wait},
};
use support::{
    bare::{claim, name},
    instant::Instant,
    runtime::runtimes,
};

async fn bare_pair(backend: &dyn Backend, name: &LockName) {
    let mut claim = claim(backend, name, 1, Mode::Exclusive);
    claim.attempt(Wait::Queue).await.unwrap();
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

fn uncontended_pair(c: &mut Criterion) {
    let mut group = c.benchmark_group("lock + release");
    for (label, runtime) in runtimes() {
        let backend: Arc<dyn Backend> = Arc::new(Instant::default());
        let name = name(Kind::Mutex);
        group.bench_function(BenchmarkId::new("bare claim calls", label), |b| {
            b.to_async(&runtime).iter(|| bare_pair(&*backend, &name));
        });
        let locker = Locker::builder(Arc::clone(&backend)).build();
        let mutex = locker.mutex("orders/42").unwrap();
        group.bench_function(BenchmarkId::new("driver, instant store", label), |b| {
            b.to_async(&runtime)
                .iter(|| async { mutex.lock().await.unwrap().release().await.unwrap() });
        });
        let memory = Locker::memory().mutex("orders/42").unwrap();
        group.bench_function(BenchmarkId::new("driver, memory store", label), |b| {
            b.to_async(&runtime)
                .iter(|| async { memory.lock().await.unwrap().release().await.unwrap() });
        });
        // The next lock waits until the background task has released the dropped guard.
        group.bench_function(
            BenchmarkId::new("drop instead of release, instant store", label),
            |b| {
                b.to_async(&runtime).iter(|| async { drop(mutex.lock().await.unwrap()) });
            },
        );
    }
    group.finish();
}

criterion_group!(benches, uncontended_pair);
criterion_main!(benches);
