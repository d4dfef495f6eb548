//! Tests of futures that begin on one runtime, and continue on another after the first has ended.
//! On the real clock.

use std::{pin::Pin, time::Duration};

use futures_util::FutureExt as _;
use tokio::time;

use super::{
    World, checked, manual, ms, options,
    runtimes::{self, single, threads},
    secs,
};
use crate::{
    Clock,
    driver::{acquire::acquire, release::release_held, request::Bound},
    fake::{Fault, Kind, Op, lock},
    spi::{LossReason, Note, Noted, QueuePolicy, Released},
};

/// A world whose requests have no timers of their own.
fn world(kind: Kind) -> World {
    let world = runtimes::world(kind);
    world.store.set_latency(ms(0));
    world
}

/// The kinds of store whose attempts do not wait in the store.
const KINDS: [Kind; 3] = [Kind::Ttl, Kind::Queue, Kind::Push];

/// Begins a future on a runtime that then ends, and finishes it on another runtime.
fn moved<T>(mut future: Pin<Box<impl Future<Output = T>>>) -> T {
    let first = single();
    let begun = first.block_on(async { time::timeout(ms(10), future.as_mut()).await });
    assert!(begun.is_err(), "it did not wait");
    drop(first);
    let last = single();
    last.block_on(async { time::timeout(secs(60), future).await.expect("it hangs") })
}

#[test]
fn c3_the_loss_signal_moves_to_another_runtime() {
    let world = world(Kind::Ttl);
    let home = threads();
    let guard = home.block_on(world.mutex_with("a", manual().with_ttl(secs(3))).lock()).unwrap();
    let lost = guard.lost();
    assert_eq!(moved(Box::pin(lost.wait())), LossReason::Expired);
    drop(guard);
    home.block_on(world.clean(""));
}

#[test]
fn c3_the_warning_moves_to_another_runtime() {
    let world = world(Kind::Ttl);
    let home = threads();
    let guard = home.block_on(world.mutex_with("a", manual().with_ttl(secs(3))).lock()).unwrap();
    let expiring = guard.expiring(ms(300));
    let left = moved(Box::pin(expiring.wait()));
    assert!(left <= ms(300), "{left:?}");
    drop(guard);
    home.block_on(world.clean(""));
}

/// The call waits in the line of the process, or in the store.
#[test]
fn c8_a_call_that_waits_moves_to_another_runtime() {
    for kind in KINDS {
        for gated in [true, false] {
            let world = world(kind);
            let world = World { store: world.store, locker: world.locker.with_process_gate(gated) };
            let home = threads();
            let guard = home.block_on(world.mutex("a").lock()).unwrap();
            home.spawn(async move {
                time::sleep(secs(2)).await;
                guard.release().await
            });
            let mutex =
                world.mutex_with("a", options().with_ttl(secs(30)).with_op_timeout(secs(2)));
            let next = moved(Box::pin(mutex.lock())).unwrap();
            assert!(next.is_held(), "{kind:?}, gated: {gated}");
            drop((next, mutex));
            home.block_on(world.clean(&format!("{kind:?}, gated: {gated}")));
        }
    }
}

/// The call ends neither before its bound nor long after it.
#[test]
fn c8_a_bounded_call_moves_to_another_runtime() {
    for kind in KINDS {
        for gated in [true, false] {
            let world = world(kind);
            let world = World { store: world.store, locker: world.locker.with_process_gate(gated) };
            let home = threads();
            let guard =
                home.block_on(world.mutex_with("a", options().with_ttl(secs(60))).lock()).unwrap();
            let mutex = world.mutex("a");
            let start = std::time::Instant::now();
            let error = moved(Box::pin(mutex.lock_timeout(secs(2)))).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Timeout);
            assert!(start.elapsed() >= secs(2), "{kind:?}, gated: {gated}: {:?}", start.elapsed());
            drop((guard, mutex));
            home.block_on(world.clean(&format!("{kind:?}, gated: {gated}")));
        }
    }
}

/// The bound holds, however often the call moves.
#[test]
fn c8_a_bounded_call_that_moves_again_and_again_ends_at_its_bound() {
    let world = world(Kind::Ttl);
    let home = threads();
    home.block_on(async { drop(world.mutex("a").lock().await.unwrap()) });
    world.store.always(Op::Attempt, Fault::Hang);
    let mutex = world.mutex_with("a", options().with_ttl(secs(60)).with_op_timeout(secs(2)));
    let mut waiting = Box::pin(mutex.lock_timeout(ms(500)));
    let mut moves = 0;
    while single().block_on(async { time::timeout(ms(300), waiting.as_mut()).await }).is_err() {
        moves += 1;
        assert!(moves < 3, "the bound begins anew");
    }
    drop(waiting);
    world.store.heal();
    drop(mutex);
    home.block_on(world.clean(""));
}

#[test]
fn c5_a_request_without_an_answer_moves_to_another_runtime() {
    let world = world(Kind::Ttl);
    let home = threads();
    let mutex = world.mutex_with("a", options().with_ttl(secs(30)).with_op_timeout(secs(4)));
    let guard = home.block_on(mutex.lock()).unwrap();
    world.store.once(Op::WriteNote, [Fault::HangAfter]);
    let note = Note::new(1, "moved".to_owned());
    assert_eq!(moved(Box::pin(guard.write_note(&note))).unwrap(), Noted::Written);
    world.store.once(Op::KeepAlive, [Fault::HangAfter]);
    let error = moved(Box::pin(guard.renew())).unwrap_err();
    assert!(error.context().contains("did not answer"), "{error}");
    world.store.once(Op::Release, [Fault::HangAfter]);
    moved(Box::pin(guard.release())).unwrap();
    drop(mutex);
    home.block_on(world.clean(""));
}

/// The release moves during the pause between two tries.
#[test]
fn c7_a_release_that_tries_again_moves_to_another_runtime() {
    let world = world(Kind::Ttl);
    let home = threads();
    let mutex = world.mutex("a");
    let options = checked(options());
    let held =
        home.block_on(acquire(world.request(&mutex, &options), Bound::Forever)).unwrap().unwrap();
    world.agenda().retire(&held, None);
    world.store.once(Op::Release, [Fault::Fail(crate::ErrorKind::Unavailable); 3]);
    assert_eq!(moved(Box::pin(release_held(world.agenda(), held))).unwrap(), Released::Freed);
    assert_eq!(world.store.count(Op::Release), 4);
    drop(mutex);
    home.block_on(world.clean(""));
}

/// A thread in no runtime polls the call, and the call returns an error.
#[test]
fn c13_a_call_that_waits_and_leaves_all_runtimes_is_an_error() {
    for gated in [true, false] {
        let world = world(Kind::Ttl);
        let world = World { store: world.store, locker: world.locker.with_process_gate(gated) };
        let home = threads();
        let guard = home.block_on(world.mutex("a").lock()).unwrap();
        let mutex = world.mutex("a");
        let mut waiting = Box::pin(mutex.lock());
        let first = single();
        first.block_on(async { time::timeout(ms(50), waiting.as_mut()).await.unwrap_err() });
        drop(first);
        let error = super::outside::block_on(waiting).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::NoRuntime, "{error}");
        drop((guard, mutex));
        home.block_on(world.clean(&format!("gated: {gated}")));
    }
}

/// After sixteen transfers others go first, and the next task of this process rests before it asks
/// the store.
#[test]
fn c8_a_rest_before_a_turn_moves_to_another_runtime() {
    let World { store, locker } = World::transferring_as(|builder| builder.clock(Clock::Boot));
    store.set_latency(ms(0));
    let locker = locker.with_defaults(options().with_ttl(secs(60))).unwrap();
    let world = World { store, locker };
    let mutex = world.mutex("a");
    let first = single();
    let mut resting = Box::pin(mutex.lock());
    first.block_on(async {
        let mut guard = mutex.lock().await.unwrap();
        loop {
            assert!(resting.as_mut().now_or_never().is_none());
            guard.release().await.unwrap();
            if lock(&world.store.policies).ends_with(&[QueuePolicy::QueueFirst]) {
                let asked = world.store.count(Op::Attempt);
                assert!(resting.as_mut().now_or_never().is_none());
                assert_eq!(world.store.count(Op::Attempt), asked, "it does not rest");
                return;
            }
            guard = resting.as_mut().await.unwrap();
            resting.set(mutex.lock());
        }
    });
    assert_eq!(world.store.holders(), 0);
    drop(first);
    let last = single();
    let guard =
        last.block_on(async { time::timeout(secs(60), resting).await.expect("it hangs") }).unwrap();
    assert!(guard.is_held());
    drop((guard, mutex));
    last.block_on(world.clean(""));
}

#[test]
fn an_observer_of_an_election_moves_to_another_runtime() {
    let locker = crate::Locker::memory();
    let home = threads();
    let election = locker.election("a").unwrap();
    let leader = home.block_on(election.campaign("me")).unwrap();
    let mut watch = election.watch().with_interval(Duration::from_millis(200));
    assert!(single().block_on(watch.changed()).unwrap().is_some());
    home.spawn(async move {
        time::sleep(secs(2)).await;
        leader.resign().await
    });
    assert!(moved(Box::pin(watch.changed())).unwrap().is_none());
    home.block_on(locker.shutdown()).unwrap();
}
