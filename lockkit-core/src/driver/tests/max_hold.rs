//! Tests of holds that end at `max_hold`, however often they are renewed.

use std::time::Duration;

use tokio::time::{self, Instant};

use super::{
    TTL, World, manual, ms, options,
    runtimes::{self, single},
    secs,
};
use crate::{
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
    spi::LossReason,
};

const CAP: Duration = secs(10);

#[tokio::test(start_paused = true)]
async fn c3_a_hold_ends_exactly_at_its_max_and_is_freed_at_once() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex_with("a", options().with_max_hold(CAP)).lock().await.unwrap();
        let start = Instant::now();
        assert!(guard.remaining() <= CAP, "{kind:?}");
        time::sleep(CAP - ms(3)).await;
        assert!(guard.is_held(), "{kind:?}");
        assert!(guard.remaining() <= ms(3), "{kind:?} {:?}", guard.remaining());
        let lost = guard.lost().await;
        assert_eq!(
            (lost, lost.to_string().contains("held for max_hold")),
            (LossReason::MaxHold, true)
        );
        assert!(
            (9_999..10_002).contains(&start.elapsed().as_millis()),
            "{kind:?} {:?}",
            start.elapsed()
        );
        assert!(!guard.is_held());
        time::sleep(ms(4)).await;
        assert_eq!(
            world.store.holder("a"),
            None,
            "{kind:?}: freed early, though the guard is still there"
        );
        assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(world.store.renewals_after_release(), 0);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_the_end_of_a_hold_causes_no_other_renewals() {
    for (kind, most) in [(Kind::Ttl, 11), (Kind::Pinned, 11)] {
        let world = World::new(kind);
        let guard = world.mutex_with("a", options().with_max_hold(CAP)).lock().await.unwrap();
        guard.lost().await;
        let renewals = world.store.count(Op::KeepAlive);
        assert!((9..=most).contains(&renewals), "{kind:?}: {renewals} in 10 s, due each second");
        drop(guard);
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_max_hold_is_counted_from_the_grant_and_renewals_by_hand_do_not_move_it() {
    let world = World::new(Kind::Ttl);
    let first = world.mutex("a").lock().await.unwrap();
    let waiting = world.mutex_with("a", manual().with_max_hold(secs(5)));
    let (second, ()) = tokio::join!(waiting.lock(), async {
        time::sleep(secs(4)).await;
        first.release().await.unwrap();
    });
    let guard = second.unwrap();
    let start = Instant::now();
    assert!(guard.remaining() > ms(2_900), "the wait counts for nothing");
    time::sleep(ms(2_500)).await;
    guard.renew().await.unwrap();
    time::sleep(ms(2_400)).await;
    guard.renew().await.unwrap();
    assert!(guard.is_held() && guard.remaining() < ms(100), "{:?}", guard.remaining());
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert!((4_990..5_010).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    drop((guard, waiting));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_lease_that_ends_before_the_max_hold_has_expired() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual().with_max_hold(TTL)).lock().await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Expired);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_just_before_the_max_hold_has_its_whole_bound() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", options().with_max_hold(CAP)).lock().await.unwrap();
    time::sleep(CAP - ms(2)).await;
    // The lease lasts much longer: a late answer still counts, and after a lost answer the release
    // is sent again.
    world.store.once(Op::Release, [Fault::LoseReply, Fault::SlowReply(ms(500))]);
    guard.release().await.unwrap();
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_an_unknown_renewal_at_the_end_neither_ends_nor_prolongs_a_hold() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", options().with_max_hold(CAP)).lock().await.unwrap();
    let start = Instant::now();
    time::sleep(CAP - ms(500)).await;
    world.store.always(Op::KeepAlive, Fault::Hang);
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert!((9_999..10_002).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    world.store.heal();
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_hold_before_its_max() {
    for kind in KINDS {
        for (cap, reason) in [(secs(3), LossReason::MaxHold), (secs(60), LossReason::Closed)] {
            let world = World::new(kind);
            let guard = world.mutex_with("a", options().with_max_hold(cap)).lock().await.unwrap();
            time::sleep(ms(1_500)).await;
            let start = Instant::now();
            let (lost, done) = tokio::join!(guard.lost(), world.locker.shutdown());
            done.unwrap();
            assert_eq!(lost, reason, "{kind:?} {cap:?}");
            assert!(start.elapsed() < TTL + ms(20), "{kind:?} {:?}", start.elapsed());
            drop(guard);
            world.clean(&format!("{kind:?}")).await;
        }
    }
}

#[test]
fn c3_a_session_hold_with_a_max_is_lost_with_its_runtime() {
    let first = single();
    let second = single();
    let world = runtimes::world(Kind::Pinned);
    let mutex = world.mutex_with("a", options().with_max_hold(CAP));
    let guard = first.block_on(mutex.lock()).unwrap();
    drop(first);
    assert!(!guard.is_held(), "nobody watches its session any more");
    drop((guard, mutex));
    second.block_on(async {
        drop(world.mutex("b").try_lock().await.unwrap());
        world.clean("").await;
    });
}

#[tokio::test(start_paused = true)]
async fn c3_a_session_hold_with_a_max_is_looked_after_through_a_shutdown() {
    let world = World::new(Kind::Pinned);
    let guard = world.mutex_with("a", options().with_max_hold(secs(60))).lock().await.unwrap();
    let (lost, done) = tokio::join!(guard.lost(), async {
        let evict = async {
            time::sleep(ms(500)).await;
            world.store.evict_all();
        };
        tokio::join!(world.locker.shutdown(), evict).0
    });
    done.unwrap();
    assert_eq!(lost, LossReason::Evicted);
    drop(guard);
    world.clean("").await;
}
