//! What the core itself costs: lock + release over a store that answers at once, beside the bare claim calls.
//!
//! Criterion runs one after the other; compare the two figures of one run, never figures of two runs.

mod support {
    pub(crate) mod instant;
}

use std::{sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockkit_core::{
    Kind, LockName, Locker, OwnerId,
    spi::{Backend, ClaimSpec, Mode, Wait},
};
use support::instant::Instant;
use tokio::runtime::{Builder, Runtime};

fn runtimes() -> [(&'static str, Runtime); 2] {
    [
        ("one thread", Builder::new_current_thread().enable_all().build().unwrap()),
        ("two threads", Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()),
    ]
}

async fn bare_pair(backend: &dyn Backend, name: &LockName) {
    let ttl = Duration::from_secs(30);
    let spec = ClaimSpec::new(name.clone(), OwnerId::new(1), Mode::Exclusive, ttl, ttl / 10);
    let mut claim = backend.claim(spec).unwrap();
    claim.attempt(Wait::Queue).await.unwrap();
    claim.release().await.unwrap();
}

fn uncontended_pair(c: &mut Criterion) {
    let mut group = c.benchmark_group("lock + release");
    for (label, runtime) in runtimes() {
        let backend: Arc<dyn Backend> = Arc::new(Instant::default());
        let name = LockName::new(Kind::Mutex, "orders/42").unwrap();
        group.bench_function(BenchmarkId::new("bare claim calls", label), |b| {
            b.to_async(&runtime).iter(|| bare_pair(&*backend, &name));
        });
        let mutex = Locker::from_dyn(Arc::clone(&backend)).mutex("orders/42").unwrap();
        group.bench_function(BenchmarkId::new("driver, instant store", label), |b| {
            b.to_async(&runtime).iter(|| async { mutex.lock().await.unwrap().release().await.unwrap() });
        });
        let memory = Locker::memory().mutex("orders/42").unwrap();
        group.bench_function(BenchmarkId::new("driver, memory store", label), |b| {
            b.to_async(&runtime).iter(|| async { memory.lock().await.unwrap().release().await.unwrap() });
        });
    }
    group.finish();
}

criterion_group!(benches, uncontended_pair);
criterion_main!(benches);
