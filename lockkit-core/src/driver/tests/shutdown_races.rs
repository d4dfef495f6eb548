//! Tests of shutdowns that race with callers on other threads.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::{runtime::Builder, time};

use super::{
    ms, options,
    runtimes::{single, threads, world},
    secs,
};
use crate::{
    Locker,
    error::ErrorKind,
    fake::{Fake, KINDS, Kind, Store, lock},
    spi::{Descriptor, Poll},
};

#[test]
fn a_lock_that_races_with_the_shutdown_never_slips_through() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let late = Arc::new(AtomicUsize::new(0));
    for _ in 0..300 {
        let store = Store::new(0);
        let locker = Locker::new(Fake::new(Arc::clone(&store), Kind::Ttl));
        let locker = locker.with_defaults(options()).unwrap();
        runtime.block_on(async {
            let tasks: Vec<_> = (0..4)
                .map(|i| {
                    let locker = locker.clone();
                    let late = Arc::clone(&late);
                    tokio::spawn(async move {
                        let mutex = locker.mutex(&format!("k{i}")).unwrap();
                        loop {
                            let draining = locker.keeper.locker().is_draining();
                            match mutex.lock().await {
                                Ok(guard) => {
                                    late.fetch_add(usize::from(draining), SeqCst);
                                    drop(guard);
                                }
                                Err(error) => return assert_eq!(error.kind(), ErrorKind::Closed),
                            }
                        }
                    })
                })
                .collect();
            time::sleep(Duration::from_micros(rand::random_range(0..500))).await;
            locker.shutdown().await.unwrap();
            assert_eq!(store.holders(), 0);
            assert_eq!(*lock(&store.claims_at_close), [0]);
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
    assert_eq!(late.load(SeqCst), 0);
}

/// For longer than this test, no waiter polls and no lease ends. A waiter that misses the beginning
/// of the shutdown is late.
#[test]
fn waiters_that_are_about_to_sleep_hear_the_shutdown() {
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    for _ in 0..300 {
        let poll = Poll { min: secs(300), max: secs(300) };
        let fake = Fake::new(Store::new(0), Kind::Push).described(|it| Descriptor { poll, ..it });
        let options = options().with_ttl(secs(300));
        // In the line of the process, a waiter looks again soon.
        let locker = Locker::new(fake).with_process_gate(false).with_defaults(options).unwrap();
        runtime.block_on(async {
            let mutex = locker.mutex("a").unwrap();
            let guard = mutex.lock().await.unwrap();
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let mutex = mutex.clone();
                    tokio::spawn(async move {
                        time::timeout(secs(60), mutex.lock()).await.map(|told| told.map(drop))
                    })
                })
                .collect();
            let spins = rand::random_range(0..20_000);
            (0..spins).for_each(|_| std::hint::spin_loop());
            let told = async {
                for waiter in waiters {
                    let told = waiter.await.unwrap().expect("a word in time");
                    assert_eq!(told.unwrap_err().kind(), ErrorKind::Closed);
                }
                drop(guard);
            };
            let (closed, ()) = tokio::join!(locker.shutdown(), told);
            closed.unwrap();
        });
    }
}

/// The background task's runtime ends while the shutdown waits for the work of that task.
#[test]
fn c6_a_shutdown_outlives_the_runtime_of_the_keeper() {
    for kind in KINDS {
        let world = world(kind);
        let home = single();
        let waits = home.block_on(async {
            let guard = world.mutex("a").lock().await.unwrap();
            drop(guard);
            // The background task is not polled from here on.
            world.locker.keeper.locker().live_claims()
        });
        assert_eq!(waits, 1, "{kind:?}");
        single().block_on(async {
            let mut closing = pin!(world.locker.shutdown());
            time::timeout(ms(20), closing.as_mut()).await.unwrap_err();
            home.shutdown_background();
            closing.await.unwrap();
            // A shutdown that waits for ever gives up after three ttls, and closes the store all
            // the same.
            assert_eq!(*lock(&world.store.claims_at_close), [0], "{kind:?}");
            assert_eq!(world.store.holders(), 0, "{kind:?}");
        });
    }
}

/// A runtime that shuts down takes no new task, and waits until each of its tasks has paused.
#[test]
fn c6_a_shutdown_does_not_delay_the_end_of_its_runtime() {
    let world = world(Kind::Ttl);
    let runtime = threads();
    let mutex = world.mutex_with("a", options().with_ttl(secs(100)));
    let guard = runtime.block_on(mutex.lock()).unwrap();
    runtime.spawn(async move {
        time::sleep(secs(100)).await;
        drop(guard);
    });
    let (begin, begun) = mpsc::channel();
    let locker = world.locker.clone();
    let ends = Arc::new(());
    let ended = Arc::downgrade(&ends);
    runtime.spawn(async move {
        let _ends = ends;
        begin.send(()).unwrap();
        // The runtime is shutting down, and cannot take this thread away.
        thread::sleep(ms(300));
        locker.shutdown().await
    });
    begun.recv().unwrap();
    runtime.shutdown_timeout(secs(30));
    assert_eq!(ended.strong_count(), 0, "it never paused");
}
