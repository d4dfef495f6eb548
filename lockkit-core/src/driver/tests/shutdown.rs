//! Tests of the shutdown of a locker.

use futures_util::FutureExt as _;
use tokio::{
    runtime::Handle,
    time::{self, Instant},
};

use super::{TTL, World, manual, ms, options, secs};
use crate::{
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op, lock},
    options::Renewal,
    spi::LossReason,
};

/// Checks that the store was closed once, when no claim was left. The background task must have
/// ended, although the locker still exists.
async fn closed_well(world: World, what: &str) {
    assert_eq!(*lock(&world.store.claims_at_close), [0], "{what}");
    time::sleep(ms(5)).await;
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0, "{what}");
    world.clean_now(what).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_locker_shuts_down_at_once_and_refuses_everything() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    mutex.lock().await.unwrap().release().await.unwrap();
    let start = Instant::now();
    world.locker.shutdown().await.unwrap();
    assert!(start.elapsed() < ms(10));
    assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(mutex.try_lock().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(mutex.lock_timeout(ms(5)).await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(mutex.inspect().await.unwrap_err().kind(), ErrorKind::Closed);
    world.locker.clone().shutdown().await.unwrap();
    drop(mutex);
    closed_well(world, "").await;
}

#[tokio::test(start_paused = true)]
async fn waiters_end_at_once() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let mutex = world.mutex("a");
        let waiting = tokio::spawn(async move { (mutex.lock().await.map(drop), Instant::now()) });
        time::sleep(ms(300)).await;
        let start = Instant::now();
        let locker = world.locker.clone();
        let closing = tokio::spawn(async move { locker.shutdown().await });
        let (outcome, at) = waiting.await.unwrap();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Closed, "{kind:?}");
        assert!(at - start < ms(2), "{kind:?}: after {:?}", at - start);
        guard.release().await.unwrap();
        closing.await.unwrap().unwrap();
        closed_well(world, &format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn guards_held_during_a_shutdown_are_lost_within_one_ttl_and_not_renewed() {
    for kind in KINDS {
        for renewal in [Renewal::Auto, Renewal::Manual] {
            let world = World::new(kind);
            let mutex = world.mutex_with("a", options().with_renewal(renewal));
            let guard = mutex.lock().await.unwrap();
            time::sleep(ms(500)).await;
            world.store.forget_log();
            let start = Instant::now();
            let locker = world.locker.clone();
            let closing = tokio::spawn(async move { locker.shutdown().await });
            assert_eq!(time::timeout(TTL + ms(5), guard.lost()).await, Ok(LossReason::Closed));
            let what = format!("{kind:?}, {renewal:?}, {:?}", start.elapsed());
            if kind == Kind::Ttl {
                assert!(start.elapsed() < ms(2_500), "with its lease, {what}");
                assert_eq!(world.store.count(Op::KeepAlive), 0, "{what}");
            }
            closing.await.unwrap().unwrap();
            assert!(start.elapsed() < TTL + ms(50), "{what}");
            assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
            drop(mutex);
            closed_well(world, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn renewing_by_hand_does_not_put_the_end_off() {
    for kind in KINDS {
        let world = World::new(kind);
        let mutex = world.mutex_with("a", manual());
        let guard = mutex.lock().await.unwrap();
        let start = Instant::now();
        let locker = world.locker.clone();
        let closing = tokio::spawn(async move { locker.shutdown().await });
        for _ in 0..5 {
            time::sleep(ms(500)).await;
            guard.renew().await.unwrap();
        }
        let reason = time::timeout(secs(5), guard.lost()).await;
        assert_eq!(reason, Ok(LossReason::Closed), "{kind:?}");
        assert!(start.elapsed() < TTL + ms(50), "{kind:?} {:?}", start.elapsed());
        closing.await.unwrap().unwrap();
        drop((guard, mutex));
        closed_well(world, &format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_session_that_ends_during_the_shutdown_is_noticed() {
    let woken = [Renewal::Auto, Renewal::Manual].map(|renewal| (Kind::Push, renewal, ms(10)));
    for (kind, renewal, soon) in woken.into_iter().chain([(Kind::Queue, Renewal::Auto, ms(1_010))])
    {
        let world = World::new(kind);
        let guard = world.mutex_with("a", options().with_renewal(renewal)).lock().await.unwrap();
        let locker = world.locker.clone();
        let closing = tokio::spawn(async move { locker.shutdown().await });
        time::sleep(ms(100)).await;
        world.store.evict_all();
        let start = Instant::now();
        assert_eq!(guard.lost().await, LossReason::Evicted);
        assert!(start.elapsed() < soon, "{kind:?}, {renewal:?} {:?}", start.elapsed());
        closing.await.unwrap().unwrap();
        drop(guard);
        closed_well(world, "").await;
    }
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_the_cleanup_of_dropped_guards_and_futures() {
    for kind in KINDS {
        let world = World::new(kind);
        let guards =
            [world.mutex("a").lock().await.unwrap(), world.mutex("b").lock().await.unwrap()];
        world.store.set_latency(ms(100));
        time::timeout(ms(20), world.mutex("c").lock()).await.unwrap_err();
        world.store.once(Op::Release, [Fault::LoseReply, Fault::Fail(ErrorKind::Unavailable)]);
        drop(guards);
        world.locker.shutdown().await.unwrap();
        assert_eq!((world.store.holders(), world.store.queued()), (0, 0), "{kind:?}");
        closed_well(world, &format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_the_shutdown_began_is_undone() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.once(Op::Attempt, [Fault::SlowReply(ms(300))]);
        let mutex = world.mutex("a");
        let locking = tokio::spawn(async move { mutex.lock().await.map(drop) });
        time::sleep(ms(50)).await;
        assert!(world.store.holder("a").is_some());
        world.locker.shutdown().await.unwrap();
        assert_eq!(locking.await.unwrap().unwrap_err().kind(), ErrorKind::Closed, "{kind:?}");
        closed_well(world, &format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_as_the_shutdown_begins_is_undone() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let mut locking = Box::pin(mutex.lock());
    time::timeout(ms(1), locking.as_mut()).await.unwrap_err();
    time::advance(ms(5)).await; // the answer is there, and was not polled
    let mut closing = Box::pin(world.locker.shutdown());
    assert!(closing.as_mut().now_or_never().is_none());
    assert_eq!(locking.await.unwrap_err().kind(), ErrorKind::Closed);
    closing.await.unwrap();
    drop(mutex);
    closed_well(world, "").await;
}

#[tokio::test(start_paused = true)]
async fn c6_a_dropped_shutdown_continues_and_can_be_repeated() {
    for close in [None, Some(Fault::SlowReply(ms(300)))] {
        let world = World::new(Kind::Ttl);
        world.store.once(Op::Close, close);
        let guard = world.mutex("a").lock().await.unwrap();
        time::timeout(ms(50), world.locker.shutdown()).await.unwrap_err();
        assert_eq!(world.mutex("a").lock().await.unwrap_err().kind(), ErrorKind::Closed);
        drop(guard);
        time::timeout(ms(50), world.locker.shutdown()).await.ok();
        world.locker.shutdown().await.unwrap();
        assert_eq!(world.store.count(Op::Close), 1);
        closed_well(world, "").await;
    }
}

#[tokio::test(start_paused = true)]
async fn shutdowns_at_the_same_time_close_once() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let (one, two, ()) =
        tokio::join!(world.locker.shutdown(), world.locker.shutdown(), async { drop(guard) });
    assert!(one.is_ok() && two.is_ok());
    closed_well(world, "").await;
}

/// The first call is closing the store, is pinned, and is not polled any more.
#[tokio::test(start_paused = true)]
async fn an_unpolled_shutdown_does_not_hang_the_next() {
    let world = World::new(Kind::Ttl);
    world.store.once(Op::Close, [Fault::SlowReply(ms(300))]);
    let locker = world.locker.clone();
    let again = world.locker.clone();
    let mut closing = Box::pin(async move { locker.shutdown().await });
    time::timeout(ms(50), closing.as_mut()).await.unwrap_err();
    let start = Instant::now();
    let error = again.shutdown().await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some("close")));
    assert!(start.elapsed() <= TTL + ms(5), "{:?}", start.elapsed());
    closing.await.unwrap();
    again.shutdown().await.unwrap();
    drop(again);
    closed_well(world, "").await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_can_not_be_closed_is_asked_again_by_the_next_call() {
    for fault in [Fault::Fail(ErrorKind::Unavailable), Fault::Panic] {
        let world = World::new(Kind::Ttl);
        world.store.once(Op::Close, [fault]);
        let error = world.locker.shutdown().await.unwrap_err();
        assert_eq!((error.operation(), error.backend()), (Some("close"), Some("fake")));
        world.locker.shutdown().await.unwrap();
        assert_eq!(world.store.count(Op::Close), 2);
        closed_well(world, "").await;
    }
}

/// A pinned future that is not polled any more keeps its claim. The shutdown must not wait for it
/// for ever.
#[tokio::test(start_paused = true)]
async fn an_unpolled_call_does_not_hang_it() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        let mutex = world.mutex("a");
        let mut waiting = Box::pin(mutex.lock());
        time::timeout(ms(50), waiting.as_mut()).await.unwrap_err();
        guard.release().await.unwrap();
        let start = Instant::now();
        time::timeout(secs(30), world.locker.shutdown()).await.expect("an end").unwrap();
        assert!(start.elapsed() <= TTL * 3 + ms(5), "{kind:?} {:?}", start.elapsed());
        let told = waiting.await.unwrap_err().kind();
        assert_eq!(
            told,
            if kind == Kind::Pinned { ErrorKind::Unavailable } else { ErrorKind::Closed }
        );
        drop(mutex);
        world.clean(&format!("{kind:?}")).await;
    }
}
