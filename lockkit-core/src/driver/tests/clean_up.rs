//! C5, C8: tests that something an attempt may have left is removed, and never handed out when it
//! is stale.

use std::time::Duration;

use tokio::time;

use super::{TTL, World, ms, secs};
use crate::{
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
};

#[tokio::test(start_paused = true)]
async fn c5_an_attempt_whose_reply_is_lost_is_retried_and_gets_its_own_token() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.once(Op::Attempt, [Fault::LoseReply; 3]);
        let guard = world.mutex("a").lock().await.unwrap();
        assert_eq!(guard.fencing_token().get(), 1, "{kind:?}");
        guard.release().await.unwrap();
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c5_giving_up_after_an_unknown_attempt_releases() {
    for kind in KINDS {
        let world = World::new(kind);
        world.store.once(Op::Attempt, [Fault::LoseReply]);
        let error = world.mutex("a").try_lock().await.unwrap_err();
        assert!(error.is_outcome_unknown());
        time::sleep(ms(50)).await;
        assert_eq!(world.store.holder("a"), None, "{kind:?}");
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c5_an_unknown_attempt_is_undone_although_a_later_one_was_refused() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.once(Op::Attempt, [Fault::LoseReply]);
    assert_eq!(
        world.mutex("a").lock_timeout(ms(100)).await.unwrap_err().kind(),
        ErrorKind::Timeout
    );
    time::sleep(ms(50)).await;
    assert!(world.store.count(Op::Attempt) > 2, "refused for certain after the unknown one");
    assert_eq!(world.store.count(Op::Release), 1, "the unknown one may still be applied");
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_try_lock_costs_one_request() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.forget_log();
    assert!(world.mutex("a").try_lock().await.unwrap().is_none());
    time::sleep(ms(50)).await;
    assert_eq!((world.store.count(Op::Attempt), world.store.count(Op::Release)), (1, 0));
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gave_up_does_not_meet_its_own_shadow() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        assert!(world.mutex("a").try_lock().await.unwrap().is_none());
        assert_eq!(
            world.mutex("a").lock_timeout(ms(100)).await.unwrap_err().kind(),
            ErrorKind::Timeout
        );
        // The lock becomes free at this moment.
        world.store.evict("a");
        let next = world.mutex("a").try_lock().await.unwrap();
        assert!(next.is_some(), "{kind:?}");
        drop((guard, next));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_grant_whose_answer_took_longer_than_the_lease_is_not_handed_out() {
    let world = World::new(Kind::Ttl);
    world.store.set_lease(crate::spi::Lease::For(ms(300)));
    world.store.once(Op::Attempt, [Fault::SlowReply(ms(300))]);
    let error = world.mutex("a").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.context().contains("longer than the lease"), "{error}");
    time::sleep(ms(50)).await;
    assert_eq!(world.store.holder("a"), None, "released");
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_stale_grant_is_asked_for_again() {
    let world = World::new(Kind::Ttl);
    world.store.set_lease(crate::spi::Lease::For(ms(300)));
    world.store.once(Op::Attempt, [Fault::SlowReply(ms(300))]);
    let guard = world.mutex("a").lock().await.unwrap();
    assert_eq!(guard.fencing_token().get(), 1, "its own grant, confirmed again");
    assert!(guard.remaining() > ms(280));
    guard.release().await.unwrap();
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_the_lease_counts_from_before_the_request() {
    let world = World::new(Kind::Ttl);
    world.store.set_latency(ms(800));
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.always(Op::KeepAlive, Fault::Hang);
    guard.lost().await;
    assert!(
        world.store.holder("a").is_some(),
        "lost comes before the store can grant to somebody else"
    );
    drop(guard);
    time::sleep(TTL * 3).await;
    world.store.heal();
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_store_gets_at_least_five_releases_and_those_of_one_ttl() {
    for (latency, fault) in [(0, Fault::Fail(ErrorKind::Unavailable)), (2, Fault::Hang)] {
        let world = World::new(Kind::Ttl);
        world.store.set_latency(ms(latency));
        world.store.always(Op::Release, fault);
        let guard = world.mutex("a").lock().await.unwrap();
        let start = time::Instant::now();
        drop(guard);
        time::sleep(secs(20)).await;
        let sent = world.store.sent(Op::Release);
        assert!(sent.len() >= 5, "{sent:?}");
        let last = *sent.last().unwrap() - start;
        assert!(last > TTL - secs(1) && last < secs(8), "{last:?}");
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_for_good_is_sent_once() {
    let world = World::new(Kind::Ttl);
    world.store.always(Op::Release, Fault::Fail(ErrorKind::PermissionDenied));
    let guard = world.mutex("a").lock().await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.store.count(Op::Release), 1);
    world.clean("").await;
}
