//! Measures a refused `try_lock`: refused because of a holder in this process, or by the store. The
//! bare claim calls run beside them.

mod support {
    pub(crate) mod bare;
    pub(crate) mod runtime;
}

use criterion::{Criterion, criterion_group, criterion_main};
use lockkit_core::{
    Kind, Locker,
    memory::Memory,
    spi::{Mode, Wait},
};
use support::{
    bare::{claim, name},
    runtime::runtimes,
};

fn refused(c: &mut Criterion) {
    let mut group = c.benchmark_group("try_lock, refused");
    let [(_, runtime), _] = runtimes();
    let memory = Memory::new();
    let name = name(Kind::Mutex);
    let locker = Locker::new(memory.clone());
    let guard = runtime.block_on(locker.mutex("orders/42").unwrap().lock()).unwrap();
    group.bench_function("bare claim calls", |b| {
        b.to_async(&runtime).iter(|| async {
            claim(&memory, &name, 1, Mode::Exclusive).attempt(Wait::No).await.unwrap()
        });
    });
    for (label, gated) in [("by the process gate", true), ("by the store", false)] {
        let mutex = locker.clone().with_process_gate(gated).mutex("orders/42").unwrap();
        group.bench_function(label, |b| {
            b.to_async(&runtime)
                .iter(|| async { assert!(mutex.try_lock().await.unwrap().is_none()) });
        });
    }
    group.finish();
    runtime.block_on(guard.release()).unwrap();
}

criterion_group!(benches, refused);
criterion_main!(benches);
