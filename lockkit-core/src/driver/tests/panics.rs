//! Tests that a panic of a backend or of an observer harms nothing else.

use tokio::time;

use super::{World, ms, secs};
use crate::{
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
};

#[tokio::test(start_paused = true)]
async fn c13_a_panic_in_an_attempt_is_an_error_and_leaves_nothing() {
    for kind in KINDS {
        for fault in [Fault::Panic, Fault::PanicAfter] {
            let world = World::new(kind);
            world.store.once(Op::Attempt, [fault]);
            let error = world.mutex("a").lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unexpected);
            assert!(error.is_outcome_unknown());
            assert!(error.context().ends_with("panicked: as ordered"), "{error}");
            time::sleep(ms(50)).await;
            drop(world.mutex("a").try_lock().await.unwrap().unwrap());
            world.clean(&format!("{kind:?}, {fault:?}")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_an_abandoned_attempt_leaves_nothing() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.set_latency(ms(100));
        world.store.once(Op::Attempt, [Fault::PanicAfter]);
        time::timeout(ms(20), world.mutex("a").lock()).await.unwrap_err();
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c8_a_panic_in_a_watch_leaves_the_poll() {
    let world = World::new(Kind::Queue);
    let guard = world.mutex("a").lock().await.unwrap();
    let mutex = world.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    world.store.once(Op::Changed, [Fault::Panic]);
    time::sleep(ms(50)).await;
    drop(guard);
    let guard = time::timeout(secs(7), waiting).await.expect("one poll").unwrap().unwrap();
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_renewal_is_an_unknown_renewal() {
    let world = World::new(Kind::Ttl);
    let a = world.mutex("a").lock().await.unwrap();
    let b = world.mutex("b").lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::Panic, Fault::PanicAfter, Fault::Panic]);
    time::sleep(secs(30)).await;
    assert!(a.is_held() && b.is_held());
    world.store.once(Op::KeepAlive, [Fault::Panic]);
    assert_eq!(a.renew().await.unwrap_err().kind(), ErrorKind::Unexpected);
    assert!(a.is_held());
    drop((a, b));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_panic_in_a_release_is_an_unknown_release() {
    for kind in KINDS {
        for fault in [Fault::Panic, Fault::PanicAfter] {
            let world = World::new(kind);
            let guard = world.mutex("a").lock().await.unwrap();
            world.store.once(Op::Release, [fault; 2]);
            guard.release().await.unwrap_or_else(|error| panic!("{kind:?}, {fault:?}: {error}"));
            let guard = world.mutex("a").lock().await.unwrap();
            world.store.once(Op::Release, [fault; 2]);
            drop(guard);
            world.clean(&format!("{kind:?}, {fault:?}")).await;
        }
    }
}
