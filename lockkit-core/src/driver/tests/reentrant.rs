//! Tests of owners that take the same mutex again.

use std::sync::{
    Arc,
    atomic::{
        AtomicUsize,
        Ordering::{AcqRel, SeqCst},
    },
};

use futures_util::FutureExt as _;
use tokio::{
    task::{JoinSet, yield_now},
    time::{self, Instant},
};

use super::{TTL, World, manual, ms, options, secs};
use crate::{
    Owner, ReentrantMutex,
    error::{ErrorKind, ErrorStatus},
    fake::{Fault, KINDS, Kind, Op},
    spi::LossReason,
};

fn idle(owner: &Owner) -> bool {
    format!("{owner:?}").contains("names: []")
}

fn mutex(owner: &Owner, name: &str) -> ReentrantMutex {
    owner.mutex(name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn c2_an_owner_takes_it_again_without_a_request_and_the_last_one_frees_it() {
    for kind in KINDS {
        let world = World::new(kind);
        let owner = world.locker.owner();
        let first = mutex(&owner, "a").lock().await.unwrap();
        world.store.forget_log();
        let second = mutex(&owner.clone(), "a").lock().await.unwrap();
        let third = mutex(&owner, "a").try_lock().await.unwrap().unwrap();
        let fourth = mutex(&owner, "a").lock_timeout(ms(0)).await.unwrap();
        assert_eq!(world.store.ops(), [], "{kind:?}");
        for guard in [&second, &third, &fourth] {
            assert_eq!(guard.fencing_token(), first.fencing_token());
            assert_eq!(guard.owner(), first.owner());
        }
        drop(first);
        third.release().await.unwrap();
        drop(second);
        time::sleep(ms(10)).await;
        assert_eq!((world.store.holders(), world.store.count(Op::Release)), (1, 0), "{kind:?}");
        assert!(fourth.is_held());
        fourth.release().await.unwrap();
        assert_eq!((world.store.holders(), world.store.count(Op::Release)), (0, 1), "{kind:?}");
        assert!(idle(&owner));
        drop((mutex(&owner, "a").lock().await.unwrap(), mutex(&owner, "b").lock().await.unwrap()));
        assert!(idle(&owner), "{kind:?}: something is kept for names that are idle");
        drop(owner);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c1_others_in_the_same_process_are_excluded() {
    for kind in KINDS {
        let world = World::new(kind);
        let owner = world.locker.owner();
        let other = world.locker.owner();
        let first = mutex(&owner, "a").lock().await.unwrap();
        let again = mutex(&owner, "a").lock().await.unwrap();
        for _ in 0..2 {
            assert!(mutex(&other, "a").try_lock().await.unwrap().is_none(), "{kind:?}");
            assert_eq!(
                world.mutex("a").lock_timeout(ms(20)).await.unwrap_err().kind(),
                ErrorKind::Timeout,
                "{kind:?}"
            );
        }
        drop(mutex(&other, "b").lock().await.unwrap());
        let token = first.fencing_token();
        drop((first, again));
        let theirs = mutex(&other, "a").lock().await.unwrap();
        assert!(theirs.fencing_token() > token);
        assert!(mutex(&owner, "a").try_lock().await.unwrap().is_none());
        drop((theirs, owner, other));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_lost_hold_is_never_replaced_under_its_guards() {
    for kind in KINDS {
        let world = World::new(kind);
        let owner = world.locker.owner();
        let first = mutex(&owner, "a").lock().await.unwrap();
        let second = mutex(&owner, "a").lock().await.unwrap();
        let lost = second.lost();
        world.store.evict_all();
        assert_eq!(first.lost().await, LossReason::Evicted);
        assert!(lost.is_lost() && !second.is_held());
        for _ in 0..2 {
            let error = mutex(&owner, "a").lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost, "{kind:?}");
            assert!(error.to_string().contains("guards of it still exist"), "{error}");
            assert_eq!(mutex(&owner, "a").try_lock().await.unwrap_err().kind(), ErrorKind::Lost);
        }
        let told = first.release().await.unwrap_err();
        assert_eq!(told.kind(), ErrorKind::Lost, "not the last, and told so");
        assert_eq!(
            mutex(&owner, "a").lock().await.unwrap_err().kind(),
            ErrorKind::Lost,
            "{kind:?}"
        );
        let token = second.fencing_token();
        assert_eq!(second.release().await.unwrap_err().kind(), ErrorKind::Lost);
        let anew = mutex(&owner, "a").lock().await.unwrap();
        assert!(anew.fencing_token() > token);
        anew.release().await.unwrap();
        drop(owner);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c8_only_one_of_two_simultaneous_calls_asks_the_store() {
    for kind in KINDS {
        let world = World::new(kind);
        let owner = world.locker.owner();
        let (a, b) = (mutex(&owner, "a"), mutex(&owner, "a"));
        let (first, second) = tokio::join!(a.lock(), b.lock());
        assert_eq!(world.store.count(Op::Attempt), 1, "{kind:?}");
        let first = first.unwrap();
        let second = second.unwrap();
        assert_eq!(first.fencing_token(), second.fencing_token());
        drop((first, second));
        time::sleep(ms(10)).await;
        world.store.forget_log();
        let (first, second) = tokio::join!(a.try_lock(), b.try_lock());
        assert_eq!((world.store.count(Op::Attempt), first.is_ok()), (1, true), "{kind:?}");
        assert!(second.unwrap().is_some(), "{kind:?}: it was to be had");
        drop(first);
        time::sleep(ms(10)).await;
        let plain = world.mutex("a").lock().await.unwrap();
        world.store.forget_log();
        let (first, second) = tokio::join!(a.try_lock(), b.try_lock());
        assert!(first.unwrap().is_none() && second.unwrap().is_none());
        assert_eq!(world.store.count(Op::Attempt), 1, "{kind:?}");
        plain.release().await.unwrap();
        drop((owner, a, b));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c6_if_the_asking_call_is_cancelled_the_other_continues() {
    for kind in KINDS {
        let world = World::new(kind);
        let owner = world.locker.owner();
        let plain = world.mutex("a").lock().await.unwrap();
        let asks = tokio::spawn({
            let a = mutex(&owner, "a");
            async move { a.lock().await.unwrap() }
        });
        time::sleep(ms(5)).await;
        let waits = tokio::spawn({
            let a = mutex(&owner, "a");
            async move { a.lock().await.unwrap() }
        });
        time::sleep(ms(5)).await;
        let start = Instant::now();
        // A call has its own bound, and a try does not wait for another call.
        assert!(mutex(&owner, "a").try_lock().await.unwrap().is_none());
        assert_eq!(start.elapsed(), ms(0), "{kind:?}");
        assert_eq!(
            mutex(&owner, "a").lock_timeout(ms(100)).await.unwrap_err().kind(),
            ErrorKind::Timeout
        );
        let error =
            mutex(&owner, "a").with_options(options().with_wait(ms(100))).unwrap().lock().await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(
            (200..204).contains(&start.elapsed().as_millis()),
            "{kind:?} {:?}",
            start.elapsed()
        );
        asks.abort();
        assert!(asks.await.unwrap_err().is_cancelled());
        time::sleep(ms(20)).await;
        plain.release().await.unwrap();
        let guard = time::timeout(secs(6), waits).await.expect("it goes on").unwrap();
        drop((guard, owner));
        world.clean(&format!("{kind:?}")).await;
    }
}

/// The call that asks the store is not polled.
#[tokio::test(start_paused = true)]
async fn c8_a_call_that_is_not_polled_holds_others_up_for_their_bounds_only() {
    let world = World::new(Kind::Ttl);
    let owner = world.locker.owner();
    let (a, b) = (mutex(&owner, "a"), mutex(&owner, "a"));
    let mut stuck = Box::pin(a.try_lock());
    assert!(stuck.as_mut().now_or_never().is_none());
    let start = Instant::now();
    assert!(b.try_lock().await.unwrap().is_none());
    assert_eq!(b.lock_timeout(ms(500)).await.unwrap_err().kind(), ErrorKind::Timeout);
    assert!(start.elapsed() <= ms(1_510), "op_timeout, and its own bound: {:?}", start.elapsed());
    drop(stuck);
    drop(b.try_lock().await.unwrap());
    drop((a, b, owner));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_if_the_asking_call_fails_the_other_call_asks() {
    let world = World::new(Kind::Ttl);
    let owner = world.locker.owner();
    let (a, b) = (mutex(&owner, "a"), mutex(&owner, "a"));
    world.store.once(Op::Attempt, [Fault::Fail(ErrorKind::PermissionDenied)]);
    let (first, second) = tokio::join!(a.lock(), b.lock());
    assert_eq!(first.unwrap_err().kind(), ErrorKind::PermissionDenied);
    second.unwrap().release().await.unwrap();
    assert!(idle(&owner));
    drop((a, b, owner));
    world.clean("").await;
}

/// The store is dead: all calls of an owner fail at the same time, and not one after the other.
#[tokio::test(start_paused = true)]
async fn c13_all_calls_of_one_owner_fail_together_when_the_store_stops() {
    for fault in [Fault::Hang, Fault::Fail(ErrorKind::Unavailable)] {
        let world = World::new(Kind::Ttl);
        let owner = world.locker.owner();
        world.store.always(Op::Attempt, fault);
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for n in 0..8 {
            let lock = mutex(&owner, "a");
            tasks.spawn(async move {
                time::sleep(ms(n * 10)).await;
                let error = lock.lock().await.unwrap_err();
                (error.kind(), error.status(), error.operation(), error.backend())
            });
        }
        for told in tasks.join_all().await {
            let expected =
                (ErrorKind::Unavailable, ErrorStatus::Persistent, Some("lock"), Some("fake"));
            assert_eq!(told, expected);
        }
        // As long as for a single call: one ttl of trouble, and then the request in flight or the
        // pause.
        assert!(start.elapsed() <= TTL + ms(1_350), "{fault:?}: {:?}", start.elapsed());
        world.store.heal();
        drop(mutex(&owner, "a").lock().await.unwrap());
        drop(owner);
        world.clean(&format!("{fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c13_all_tries_of_one_owner_fail_together_when_the_store_stops() {
    let world = World::new(Kind::Ttl);
    let owner = world.locker.owner();
    world.store.always(Op::Attempt, Fault::Hang);
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let lock = mutex(&owner, "a");
        tasks.spawn(async move {
            time::sleep(ms(n * 10)).await;
            lock.try_lock().await.unwrap_err().kind()
        });
    }
    assert_eq!(tasks.join_all().await, [ErrorKind::Unavailable; 8]);
    assert!(start.elapsed() <= ms(1_010), "one op_timeout, not {:?}", start.elapsed());
    world.store.heal();
    drop(owner);
    time::sleep(TTL).await;
    world.clean("").await;
}

/// A call without a bound tolerates trouble for its own ttl, whatever the asking call does.
#[tokio::test(start_paused = true)]
async fn c8_the_error_of_a_call_with_a_short_ttl_does_not_end_one_with_a_long_ttl() {
    let world = World::new(Kind::Ttl);
    let owner = world.locker.owner();
    world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
    let with_ttl = |ttl| mutex(&owner, "a").with_options(options().with_ttl(ttl)).unwrap();
    let asks = with_ttl(ms(200));
    let waits = with_ttl(TTL * 20);
    let first = tokio::spawn(async move { asks.lock().await.unwrap_err().kind() });
    time::sleep(ms(1)).await;
    let second = tokio::spawn(async move { waits.lock().await.map(drop) });
    assert_eq!(first.await.unwrap(), ErrorKind::Unavailable);
    time::sleep(TTL).await;
    world.store.heal();
    second.await.unwrap().unwrap();
    drop(owner);
    world.clean("").await;
}

/// A call with a bound waits until that bound, whatever error a call without a bound has found.
#[tokio::test(start_paused = true)]
async fn c8_the_error_of_one_call_does_not_end_another_before_its_bound() {
    let world = World::new(Kind::Ttl);
    let owner = world.locker.owner();
    world.store.always(Op::Attempt, Fault::Fail(ErrorKind::Unavailable));
    let asks = mutex(&owner, "a");
    let waits = mutex(&owner, "a");
    let first = tokio::spawn(async move { asks.lock().await.unwrap_err().kind() });
    let second = tokio::spawn(async move { waits.lock_timeout(TTL * 3).await.is_ok() });
    assert_eq!(first.await.unwrap(), ErrorKind::Unavailable);
    world.store.heal();
    assert!(second.await.unwrap(), "the store came back before its bound");
    drop(owner);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_call_during_the_last_release_gets_a_new_hold() {
    for kind in KINDS {
        let world = World::new(kind);
        let owner = world.locker.owner();
        for late in 0..4 {
            let guard = mutex(&owner, "a").lock().await.unwrap();
            let token = guard.fencing_token();
            let next = mutex(&owner, "a");
            let (released, again) = tokio::join!(guard.release(), async {
                time::sleep(ms(late)).await;
                next.lock().await.unwrap()
            });
            released.unwrap_or_else(|error| panic!("{kind:?} {late}: {error}"));
            assert!(again.fencing_token() > token && again.is_held(), "{kind:?} {late}");
            assert_eq!(world.store.holders(), 1);
            again.release().await.unwrap();
        }
        drop(owner);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_the_options_of_the_call_that_asked_count() {
    let world = World::new(Kind::Ttl);
    let owner = world.locker.owner();
    let first = mutex(&owner, "a").with_options(manual()).unwrap().lock().await.unwrap();
    let second = mutex(&owner, "a")
        .with_options(options().with_ttl(secs(60)))
        .unwrap()
        .lock()
        .await
        .unwrap();
    assert!(second.remaining() < secs(3));
    assert_eq!(second.lost().await, LossReason::Expired);
    drop((first, second, owner));
    world.clean("").await;
}

/// Owners and plain holders on several threads drop and release guards, and cut calls anywhere.
#[test]
fn c1_c6_a_storm_of_owners_excludes_and_leaves_nothing() {
    const OWNERS: usize = 3;
    for kind in KINDS {
        let world = super::runtimes::world(kind);
        world.store.set_latency(ms(0));
        let runtime = super::runtimes::threads();
        runtime.block_on(async {
            let owners: Vec<_> = (0..OWNERS).map(|_| world.locker.owner()).collect();
            // How many guards of each owner are inside.
            let inside: Arc<[AtomicUsize; OWNERS]> = Arc::default();
            let grants = Arc::new(AtomicUsize::new(0));
            let mut tasks = JoinSet::new();
            for task in 0..12_usize {
                let me = task % OWNERS;
                let inside = Arc::clone(&inside);
                let grants = Arc::clone(&grants);
                let lock = mutex(&owners[me], "a");
                tasks.spawn(async move {
                    for round in 0..60_usize {
                        let cut = ms(u64::try_from((task + round) % 7).unwrap());
                        let Ok(guard) = time::timeout(cut, lock.lock()).await else { continue };
                        let guard = guard.unwrap();
                        inside[me].fetch_add(1, AcqRel);
                        for other in (0..OWNERS).filter(|other| *other != me) {
                            assert_eq!(inside[other].load(SeqCst), 0, "C1: two owners are in");
                        }
                        yield_now().await;
                        let again = lock.try_lock().await.unwrap().expect("it is this owner's");
                        assert_eq!(again.fencing_token(), guard.fencing_token());
                        assert!(guard.is_held());
                        grants.fetch_add(1, AcqRel);
                        drop(guard);
                        yield_now().await;
                        inside[me].fetch_sub(1, AcqRel);
                        if round % 2 == 0 {
                            drop(again);
                        } else {
                            again.release().await.unwrap();
                        }
                    }
                });
            }
            while let Some(task) = tasks.join_next().await {
                task.unwrap();
            }
            assert!(owners.iter().all(idle), "{kind:?}");
            assert!(grants.load(SeqCst) > 50, "{kind:?}: {grants:?}");
            drop(owners);
            world.clean(&format!("{kind:?}")).await;
        });
    }
}

/// The call that asks the store is not polled.
#[tokio::test(start_paused = true)]
async fn c8_a_shutdown_ends_the_wait_for_another_call_of_the_owner() {
    let world = World::new(Kind::Ttl);
    let owner = world.locker.owner();
    let other = world.mutex("a").lock().await.unwrap();
    let first = mutex(&owner, "a");
    let second = mutex(&owner, "a");
    let mut asks = Box::pin(first.lock());
    assert!(time::timeout(ms(10), asks.as_mut()).await.is_err());
    let waits = tokio::spawn(async move { second.lock().await.unwrap_err().kind() });
    time::sleep(ms(10)).await;
    let closing = world.locker.clone();
    let shutdown = tokio::spawn(async move { closing.shutdown().await });
    let kind = time::timeout(TTL * 10, waits).await.expect("it hangs").unwrap();
    assert_eq!(kind, ErrorKind::Closed);
    drop((asks, other));
    shutdown.await.unwrap().unwrap();
}
