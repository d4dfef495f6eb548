//! Tests of several mutexes that are locked as one.

use std::time::Duration;

use tokio::time::{self, Instant};

use super::{World, manual, ms, options, secs};
use crate::{
    MutexSet,
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
    options::LockOptions,
    spi::LossReason,
};

fn set(world: &World, names: &[&str], options: LockOptions) -> MutexSet {
    world.locker.mutex_set(names).unwrap().with_options(options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn c8_one_bound_holds_for_all_names_and_taken_names_are_released_before() {
    for kind in KINDS {
        let world = World::new(kind);
        let b = world.mutex("b").lock().await.unwrap();
        let d = world.mutex("d").lock().await.unwrap();
        let all = set(&world, &["d", "c", "b", "a"], options().with_wait(secs(2)));
        let start = Instant::now();
        // "b" takes the first half of the bound, and "d" the rest.
        let (error, _) = tokio::join!(all.lock(), async {
            time::sleep(secs(1)).await;
            b.release().await.unwrap();
        });
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{kind:?}");
        assert_eq!(error.name().unwrap().as_str(), "d");
        assert!(
            start.elapsed() >= secs(2) && start.elapsed() < ms(2_030),
            "{kind:?} {:?}",
            start.elapsed()
        );
        assert_eq!(world.store.holders(), 1, "{kind:?}: only \"d\" is taken when the call returns");
        assert_eq!(all.lock_timeout(Duration::ZERO).await.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(all.try_lock().await.unwrap().is_none());
        assert_eq!(world.store.holders(), 1, "{kind:?}");
        d.release().await.unwrap();
        let guard = all.try_lock().await.unwrap().expect("all are free");
        guard.release().await.unwrap();
        drop(all);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c8_a_bound_that_others_used_up_is_no_trouble_of_the_store_and_silence_is() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.set_latency(ms(20));
        let all = set(&world, &["a", "b"], options());
        world.store.once(Op::Attempt, [Fault::SlowReply(ms(900))]);
        let outcome = all.lock_timeout(ms(930)).await;
        // 10 ms are left for a round trip of 20 ms.
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Timeout, "{kind:?}");
        time::sleep(secs(1)).await;
        world.store.once(Op::Attempt, [Fault::SlowReply(ms(0)), Fault::Hang]);
        let outcome = all.lock_timeout(ms(500)).await;
        if kind == Kind::Pinned {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "it may have waited in the store");
        } else {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{kind:?}");
            assert_eq!(error.name().unwrap().as_str(), "b");
        }
        drop(all);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_loss_while_others_are_waited_for_ends_the_call() {
    for kind in KINDS {
        let world = World::new(kind);
        let c = world.mutex("c").lock().await.unwrap();
        let all = set(&world, &["a", "b", "c"], options());
        let start = Instant::now();
        let (error, _) = tokio::join!(all.lock(), async {
            time::sleep(ms(500)).await;
            world.store.evict("b");
        });
        let error = error.unwrap_err();
        assert_eq!(
            (error.kind(), error.name().unwrap().as_str()),
            (ErrorKind::Lost, "b"),
            "{kind:?} {error}"
        );
        assert!(start.elapsed() < secs(2), "{kind:?} {:?}", start.elapsed());
        assert_eq!(world.store.holders(), 1, "{kind:?}");
        c.release().await.unwrap();
        drop(all);
        world.clean(&format!("{kind:?}")).await;
    }
}

/// The first lock is not renewed by hand during the wait.
#[tokio::test(start_paused = true)]
async fn c3_the_end_of_a_manual_lease_during_the_wait_is_reported() {
    let world = World::new(Kind::Ttl);
    let b = world.mutex("b").lock().await.unwrap();
    let all = set(&world, &["a", "b"], manual());
    let error = all.lock().await.unwrap_err();
    assert_eq!((error.kind(), error.name().unwrap().as_str()), (ErrorKind::Lost, "a"));
    drop((b, all));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_silent_store_does_not_hold_the_caller_up_beyond_its_bound() {
    for kind in KINDS {
        let world = World::new(kind);
        let b = world.mutex("b").lock().await.unwrap();
        let all = set(&world, &["a", "b"], options());
        world.store.always(Op::Release, Fault::Hang);
        let start = Instant::now();
        assert_eq!(all.lock_timeout(secs(1)).await.unwrap_err().kind(), ErrorKind::Timeout);
        assert!(start.elapsed() < ms(1_050), "{kind:?} {:?}", start.elapsed());
        world.store.heal();
        drop((b, all));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_continues_after_a_failure_and_names_the_locks_not_freed() {
    for kind in KINDS {
        let world = World::new(kind);
        let all = set(&world, &["a", "b", "c"], options());
        let guard = all.lock().await.unwrap();
        world.store.evict("b");
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{kind:?}");
        assert!(error.to_string().contains("lost before: [mutex \"b\"]"), "{error}");
        assert_eq!(world.store.holders(), 0, "{kind:?}");

        let guard = all.lock().await.unwrap();
        world.store.evict("a");
        world.store.once(Op::Release, [Fault::Fail(ErrorKind::PermissionDenied)]);
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        for named in ["mutex \"c\"", "lost before: [mutex \"a\"]"] {
            assert!(error.to_string().contains(named), "{error}");
        }
        assert_eq!(world.store.holder("b"), None, "{kind:?}: it gave up after a failure");
        world.store.evict_all();
        drop(all);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_the_signal_and_the_run_name_the_lost_lock() {
    let world = World::new(Kind::Ttl);
    let all = set(&world, &["a", "b", "c"], options());
    let guard = all.lock().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    let lost = guard.lost();
    world.store.evict("b");
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!((error.kind(), error.name().unwrap().as_str()), (ErrorKind::Lost, "b"));
    let (name, reason) = lost.clone().await;
    assert_eq!((name.as_str(), reason), ("b", LossReason::Evicted));
    assert!(lost.is_lost() && !guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    drop((guard, all));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_a_call_dropped_at_any_point_leaves_nothing() {
    for kind in KINDS {
        for cut in 0..14 {
            let world = World::new(kind);
            let b = world.mutex("b").lock().await.unwrap();
            let all = set(&world, &["a", "b", "c"], options());
            let call = async {
                let release = async {
                    time::sleep(ms(4)).await;
                    b.release().await.unwrap();
                };
                let (guard, ()) = tokio::join!(all.lock(), release);
                guard.unwrap().release().await.unwrap();
            };
            let _ = time::timeout(ms(cut), call).await;
            drop(all);
            world.clean(&format!("{kind:?} after {cut} ms")).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c11_names_are_sorted_and_checked() {
    let world = World::new(Kind::Ttl);
    let all = set(&world, &["b", "a", "B", "ä", "a "], options());
    let names: Vec<_> = all.names().map(|name| name.as_str().to_owned()).collect();
    assert_eq!(names, ["B", "a", "a ", "b", "ä"]);
    let guard = all.lock().await.unwrap();
    let tokens: Vec<_> = guard.tokens().map(|(_, token)| token).collect();
    assert!(tokens.is_sorted(), "taken in this order: {tokens:?}");
    for (name, token) in guard.tokens() {
        assert_eq!(guard.fencing_token(name.as_str()), Some(token));
    }
    assert_eq!(guard.fencing_token("c"), None);
    guard.release().await.unwrap();
    let twice = world.locker.mutex_set(["b", "a", "b"]).unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::InvalidName);
    assert!(twice.to_string().contains("mutex \"b\" is in the set twice"), "{twice}");
    let none: [&str; 0] = [];
    assert_eq!(world.locker.mutex_set(none).unwrap_err().kind(), ErrorKind::InvalidOption);
    assert_eq!(
        world.locker.lock_all(["a", "\n"]).await.unwrap_err().kind(),
        ErrorKind::InvalidName
    );
    drop(all);
    world.clean("").await;
}
