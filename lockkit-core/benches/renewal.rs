//! Measures a renewal of a held lock, beside the bare claim call.

mod support {
    pub(crate) mod bare;
    pub(crate) mod instant;
    pub(crate) mod runtime;
}

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockkit_core::{
    Kind, Locker,
    memory::Memory,
    spi::{Backend, Mode, Wait},
};
use support::{
    bare::{claim, name},
    instant::Instant,
    runtime::runtimes,
};

fn renewal(c: &mut Criterion) {
    let mut group = c.benchmark_group("renewal");
    let [(_, runtime), _] = runtimes();
    let stores: [(_, Arc<dyn Backend>); 2] = [
        ("instant store", Arc::new(Instant::default())),
        ("memory store", Arc::new(Memory::new())),
    ];
    for (store, backend) in stores {
        let mut bare = claim(&*backend, &name(Kind::Election), 1, Mode::Exclusive);
        runtime.block_on(bare.attempt(Wait::No)).unwrap();
        group.bench_function(BenchmarkId::new("bare claim call", store), |b| {
            b.iter(|| runtime.block_on(bare.renew(None)).unwrap());
        });
        let locker = Locker::builder(backend).build();
        let guard = runtime.block_on(locker.mutex("orders/42").unwrap().lock()).unwrap();
        group.bench_function(BenchmarkId::new("driver", store), |b| {
            b.iter(|| runtime.block_on(guard.renew()).unwrap());
        });
        runtime.block_on(guard.release()).unwrap();
    }
    group.finish();
}

criterion_group!(benches, renewal);
criterion_main!(benches);
