//! Measures a lock and its release of each kind, over the embedded store, beside the bare claim
//! calls.

mod support {
    pub(crate) mod bare;
    pub(crate) mod runtime;
}

use std::num::NonZeroU32;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockkit_core::{
    Kind, Locker,
    memory::Memory,
    spi::Released,
    spi::{Mode, Wait},
};
use support::{
    bare::{claim, name},
    runtime::runtimes,
};

fn pairs(c: &mut Criterion) {
    let mut group = c.benchmark_group("lock + release by kind");
    let [(_, runtime), _] = runtimes();
    let one = NonZeroU32::MIN;
    let four = NonZeroU32::MIN.saturating_add(3);
    let permits = Mode::Permits { count: one, limit: four };
    for (kind, mode) in
        [(Kind::RwLock, Mode::Shared), (Kind::RwLock, Mode::Exclusive), (Kind::Semaphore, permits)]
    {
        let memory = Memory::new();
        let name = name(kind);
        group.bench_function(
            BenchmarkId::new("bare claim calls", format!("{kind}, {mode:?}")),
            |b| {
                b.to_async(&runtime).iter(|| async {
                    let mut claim = claim(&memory, &name, 1, mode);
                    claim.attempt(Wait::Queue).await.unwrap();
                    assert_eq!(claim.release().await.unwrap(), Released::Freed);
                });
            },
        );
    }
    let locker = Locker::memory();
    let rw_lock = locker.rw_lock("orders/42").unwrap();
    let semaphore = locker.semaphore("orders/42", 4).unwrap();
    group.bench_function("driver, read", |b| {
        b.to_async(&runtime)
            .iter(|| async { rw_lock.read().await.unwrap().release().await.unwrap() });
    });
    group.bench_function("driver, write", |b| {
        b.to_async(&runtime)
            .iter(|| async { rw_lock.write().await.unwrap().release().await.unwrap() });
    });
    group.bench_function("driver, one of four permits", |b| {
        b.to_async(&runtime)
            .iter(|| async { semaphore.acquire().await.unwrap().release().await.unwrap() });
    });
    group.finish();
}

criterion_group!(benches, pairs);
criterion_main!(benches);
