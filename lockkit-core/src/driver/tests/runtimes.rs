//! Tests of runtimes that end while locks are held, on the real clock.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Builder, Runtime},
    time::{self, Instant},
};

use super::{World, ms, options, secs};
use crate::{
    Clock, LockGuard,
    fake::{Fault, KINDS, Kind, Op},
    observe::{Event, Observer},
    options::Renewal,
    spi::LossReason,
};

pub(super) fn single() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(super) fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A world on the boot clock, which all runtimes share. No lease ends because the machine stops
/// for some seconds.
pub(super) fn world(kind: Kind) -> World {
    let World { store, locker } = World::built(kind, |builder| builder.clock(Clock::Boot));
    // A lease outlasts all waits of a test, so its end hides no lost release.
    let options = options().with_ttl(secs(300)).with_op_timeout(secs(20));
    let locker = locker.with_defaults(options).unwrap();
    World { store, locker }
}

/// Waits for a condition, because a busy machine may need long.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let wait = async {
        while !is_so() {
            time::sleep(ms(5)).await;
        }
    };
    time::timeout(secs(60), wait).await.expect(what);
}

#[test]
fn a_runtime_shut_down_while_guards_live() {
    let world = world(Kind::Ttl);
    let runtime = threads();
    let [a, b, c] = [("a", 300), ("b", 300), ("c", 3)].map(|(name, ttl)| {
        let mutex = world.mutex_with(name, options().with_ttl(secs(ttl)));
        runtime.block_on(mutex.lock()).unwrap()
    });
    let lost = c.lost();
    runtime.shutdown_timeout(secs(30));
    assert!(a.is_held());
    drop(b); // no runtime: kept for the next background task
    let runtime = single();
    runtime.block_on(a.release()).expect("inline: needs no keeper");
    runtime.block_on(async { time::timeout(secs(30), lost).await.expect("fires by itself") });
    assert!(!c.is_held());
    runtime.block_on(async {
        let renewed = world.store.count(Op::KeepAlive);
        let d = world.mutex_with("d", options().with_ttl(secs(9))).lock().await.unwrap();
        until("a new keeper renews", || world.store.count(Op::KeepAlive) > renewed).await;
        assert!(d.is_held());
        d.release().await.unwrap();
        drop(c);
        world.clean("").await;
    });
}

#[test]
fn a_renewal_cut_off_by_its_runtime_is_adopted() {
    let world = world(Kind::Ttl);
    world.store.once(Op::KeepAlive, [Fault::Hang]);
    let runtime = threads();
    let ttl = secs(9);
    let guard = runtime.block_on(async {
        loop {
            let guard = world.mutex_with("a", options().with_ttl(ttl)).lock().await.unwrap();
            while guard.is_held() && world.store.count(Op::KeepAlive) == 0 {
                time::sleep(ms(5)).await;
            }
            if guard.is_held() {
                return guard;
            }
            // The machine stopped for a whole lease, so no renewal was sent.
        }
    });
    runtime.shutdown_timeout(secs(30));
    assert!(guard.is_held());
    single().block_on(async {
        drop(world.mutex("x").try_lock().await.unwrap());
        until("another keeper renews", || world.store.count(Op::KeepAlive) > 1).await;
        assert!(guard.is_held());
        drop(guard);
        world.clean("").await;
    });
}

#[test]
fn c3_a_session_guard_is_lost_with_its_runtime() {
    for renewal in [Renewal::Auto, Renewal::Manual] {
        let world = world(Kind::Queue);
        let runtime = threads();
        let mutex = world.mutex_with("a", options().with_renewal(renewal));
        let guard = runtime.block_on(mutex.lock()).unwrap();
        runtime.shutdown_timeout(secs(30));
        assert!(!guard.is_held(), "nobody watches the session");
        drop((guard, mutex));
        single().block_on(async {
            drop(world.mutex("y").try_lock().await.unwrap());
            world.clean("").await;
        });
    }
}

/// So much work is due at once that the background task yields before it has begun all of it. Then
/// its runtime ends.
#[test]
fn c7_c10_work_that_was_due_when_the_runtime_ended_is_adopted() {
    for kind in KINDS {
        let world = world(kind);
        world.store.set_latency(ms(0));
        let options = options().with_ttl(secs(12)).with_op_timeout(secs(3));
        let runtime = single();
        let mut guards: Vec<LockGuard> = (0..300)
            .map(|n| {
                runtime
                    .block_on(world.mutex_with(&format!("k{n}"), options.clone()).lock())
                    .unwrap()
            })
            .collect();
        std::thread::sleep(ms(4_100)); // all renewals are due
        drop(guards.split_off(280));
        runtime.block_on(tokio::task::yield_now());
        let renewed = world.store.count(Op::KeepAlive);
        assert!(
            (1..280).contains(&renewed),
            "the keeper has begun with {renewed} of them, not with some"
        );
        drop(runtime);
        let held = guards.iter().filter(|guard| guard.is_held()).count();
        assert_eq!(
            held,
            if kind == Kind::Ttl { 280 } else { 0 },
            "{kind:?}: nobody watches the session"
        );
        single().block_on(async {
            drop(world.mutex_with("x", options).lock().await.unwrap());
            let is_released = |n| world.store.holder(&format!("k{n}")).is_none();
            // A release counts, and not the end of a lease. `x` is released too.
            let arrived = || world.store.count(Op::Release) > 20 && (280..300).all(is_released);
            until("all releases arrive", arrived).await;
            if kind == Kind::Ttl {
                // Without a renewal, less than eight seconds are left.
                let is_renewed = |guard: &LockGuard| guard.remaining() > secs(8);
                until("the others are renewed", || guards.iter().all(is_renewed)).await;
            }
            world.store.set_latency(ms(2));
            drop(guards);
            world.clean(&format!("{kind:?}")).await;
        });
    }
}

/// The background task ends while a call waits on another runtime. That call starts a new task,
/// which adopts the work that is left and keeps the call's own hold.
#[test]
fn c10_a_waiter_outlives_the_runtime_of_the_keeper() {
    const LEASE: Duration = secs(9);
    for kind in [Kind::Ttl, Kind::Pinned] {
        let world = world(kind);
        let home = threads();
        let mutex = world.mutex_with("a", options().with_ttl(LEASE));
        let holder = home.block_on(mutex.lock()).unwrap();
        let away = single();
        let mut waiting = Box::pin(async move { mutex.lock().await });
        away.block_on(async { time::timeout(ms(50), waiting.as_mut()).await.unwrap_err() });
        home.shutdown_timeout(secs(30));
        drop(holder);
        away.block_on(async {
            let guard = time::timeout(secs(60), waiting).await.expect("a grant").unwrap();
            assert!(world.store.count(Op::Release) > 0, "{kind:?}: the lease of the holder ended");
            let before = world.store.count(Op::KeepAlive);
            let start = Instant::now();
            while world.store.count(Op::KeepAlive) == before && start.elapsed() < LEASE * 2 {
                time::sleep(ms(5)).await;
            }
            assert!(guard.is_held(), "{kind:?}: nobody renews it");
            world.store.evict_all();
            assert_eq!(
                guard.lost().wait().await,
                LossReason::Evicted,
                "{kind:?}: nobody looks after it"
            );
            drop(guard);
            world.clean(&format!("{kind:?}")).await;
        });
    }
}

#[derive(Debug)]
struct Deaf;

impl Observer for Deaf {
    fn on_event(&self, _: &Event<'_>) {}
}

/// Neither the agenda nor a hold keeps the other alive once no task can do the work.
#[test]
fn a_guard_dropped_after_runtime_and_locker_leaks_nothing() {
    for (kind, wake) in [(Kind::Ttl, false), (Kind::Push, false), (Kind::Push, true)] {
        for renewal in [Renewal::Auto, Renewal::Manual] {
            let ear = Arc::new(Deaf);
            let deaf = Arc::<Deaf>::clone(&ear);
            let World { store, locker } =
                World::built(kind, |builder| builder.clock(Clock::Boot).observer(deaf));
            let runtime = threads();
            let mutex =
                locker.mutex("a").unwrap().with_options(options().with_renewal(renewal)).unwrap();
            let guard = runtime.block_on(mutex.lock()).unwrap();
            let lost = guard.lost();
            runtime.shutdown_timeout(secs(30));
            if wake {
                store.wake_all();
            }
            drop((locker, mutex));
            drop(guard);
            assert_eq!(store.live_claims(), 0, "{kind:?}: a signal keeps no claim");
            store.wake_all();
            drop(lost);
            assert_eq!(Arc::strong_count(&store), 1, "{kind:?}, wake: {wake}");
            assert_eq!(
                Arc::strong_count(&ear),
                1,
                "{kind:?}, wake: {wake}: the agenda is still there"
            );
        }
    }
}

#[test]
fn a_runtime_shut_down_after_locker_and_guard_leaks_nothing() {
    let World { store, locker } = world(Kind::Push);
    let runtime = threads();
    let guard = runtime.block_on(locker.mutex("a").unwrap().lock()).unwrap();
    store.always(Op::Release, Fault::Hang);
    drop((locker, guard));
    runtime.shutdown_timeout(secs(30));
    assert_eq!((store.live_claims(), Arc::strong_count(&store)), (0, 1));
}

/// The next background task finishes the work that was in progress when the runtime ended.
#[test]
fn a_clean_up_cut_off_by_its_runtime_is_adopted() {
    for kind in KINDS {
        let world = world(kind);
        let runtime = threads();
        runtime.block_on(async {
            let guard = world.mutex("a").lock().await.unwrap();
            world.store.set_latency(ms(200));
            drop(guard);
            time::timeout(ms(20), world.mutex("b").lock()).await.unwrap_err();
            time::sleep(ms(20)).await;
        });
        runtime.shutdown_timeout(secs(30));
        world.store.set_latency(ms(2));
        single().block_on(async {
            drop(world.mutex("x").lock().await.unwrap());
            world.clean(&format!("{kind:?}")).await;
        });
    }
}

/// An attempt moves to the background task of another runtime, and has timers of the runtime that
/// it came from.
#[test]
fn a_caller_whose_runtime_ends_leaves_nothing_with_a_keeper_elsewhere() {
    for kind in KINDS {
        for (fault, op_timeout) in
            [(Fault::SlowReply(secs(1)), secs(3)), (Fault::HangAfter, ms(300))]
        {
            let world = world(kind);
            let home = threads();
            home.block_on(async { drop(world.mutex("x").lock().await.unwrap()) });
            let away = single();
            let options = options().with_ttl(secs(300)).with_op_timeout(op_timeout);
            let mutex = world.mutex_with("a", options);
            world.store.once(Op::Attempt, [fault]);
            let mut locking = Box::pin(mutex.lock());
            away.block_on(async { time::timeout(ms(20), locking.as_mut()).await.unwrap_err() });
            drop(locking);
            drop((away, mutex));
            home.block_on(async {
                world.clean(&format!("{kind:?}, {fault:?}")).await;
            });
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_guard_outlives_its_locker() {
    for kind in KINDS {
        let World { store, locker } = World::new(kind);
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        drop(locker);
        time::sleep(Duration::from_secs(30)).await;
        assert!(guard.is_held());
        drop(guard);
        time::sleep(ms(100)).await;
        assert_eq!((store.holders(), store.live_claims(), Arc::strong_count(&store)), (0, 0, 1));
        assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_guard_is_kept_for_ever() {
    let World { store, locker } = World::new(Kind::Ttl);
    std::mem::forget(locker.mutex("a").unwrap().lock().await.unwrap());
    drop(locker);
    time::sleep(Duration::from_secs(9)).await;
    assert!(store.holder("a").is_some());
}
