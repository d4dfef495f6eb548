//! Tests of renewals by hand for another time than the ttl.

use tokio::time::{self, Instant};

use super::{TTL, World, manual, ms, options, secs};
use crate::{
    MAX_TTL,
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
    spi::LossReason,
};

#[tokio::test(start_paused = true)]
async fn c3_an_extended_lease_is_counted_less_the_margin_and_ends() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let start = Instant::now();
    let left = guard.extend(secs(100)).await.unwrap();
    assert!((ms(98_990)..ms(99_000)).contains(&left), "{left:?}");
    assert!(guard.remaining() <= left && guard.remaining() > left - ms(5));
    guard.renew().await.unwrap();
    assert!(guard.remaining() > ms(98_900), "a renewal never shortens it: {:?}", guard.remaining());
    time::sleep(secs(90)).await;
    assert!(guard.is_held());
    // The renewal asked for the whole rest of the lease, which is more than the ttl.
    assert_eq!((world.store.count(Op::Extend), world.store.count(Op::KeepAlive)), (2, 0));
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!((98_990..99_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_an_extended_lease_is_renewed_and_looked_after_as_before() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    guard.extend(secs(10)).await.unwrap();
    time::sleep(secs(30)).await;
    assert!(guard.is_held());
    let renewals = world.store.count(Op::KeepAlive) + world.store.count(Op::Extend);
    assert!(renewals > 25, "{renewals}");
    world.store.evict_all();
    assert_eq!(time::timeout(secs(2), guard.lost().wait()).await.unwrap(), LossReason::Evicted);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c5_an_unknown_extension_neither_extends_nor_ends_the_lease() {
    for fault in
        [Fault::LoseReply, Fault::HangAfter, Fault::Hang, Fault::Fail(ErrorKind::Unavailable)]
    {
        let world = World::new(Kind::Ttl);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        let start = Instant::now();
        world.store.once(Op::Extend, [fault]);
        let error = guard.extend(secs(100)).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.operation()),
            (ErrorKind::Unavailable, Some("extend")),
            "{fault:?}"
        );
        assert!(guard.is_held() && guard.remaining() < TTL, "{fault:?}");
        assert_eq!(guard.lost().await, LossReason::Expired, "{fault:?}");
        assert!(start.elapsed() < TTL, "{fault:?} {:?}", start.elapsed());
        // The longer lease that the store may have given is released early.
        time::sleep(ms(10)).await;
        assert_eq!(world.store.holder("a"), None, "{fault:?}");
        drop(guard);
        world.clean(&format!("{fault:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_max_hold_caps_an_extension() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual().with_max_hold(secs(10))).lock().await.unwrap();
    let left = guard.extend(secs(100)).await.unwrap();
    assert!(left <= secs(10) && left > ms(9_990), "{left:?}");
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_an_impossible_extension_is_an_error() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        if kind == Kind::Ttl {
            for lease in [ms(0), ms(9), MAX_TTL + ms(1)] {
                let error = guard.extend(lease).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidOption);
                assert!(error.to_string().contains("between 10ms and 24 h"), "{error}");
            }
        } else {
            assert_eq!(
                guard.extend(secs(9)).await.unwrap_err().kind(),
                ErrorKind::Unsupported,
                "{kind:?}"
            );
        }
        assert_eq!(world.store.count(Op::Extend), 0);
        guard.release().await.unwrap();
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_extending_an_evicted_lock_reports_the_loss() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    world.store.evict_all();
    assert_eq!(guard.extend(secs(9)).await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!guard.is_held());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_an_extension_whose_caller_goes_is_finished() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", options()).lock().await.unwrap();
    world.store.once(Op::Extend, [Fault::SlowReply(ms(300))]);
    time::timeout(ms(5), guard.extend(secs(50))).await.expect_err("it takes longer");
    time::sleep(ms(400)).await;
    assert!(guard.remaining() > secs(48), "{:?}", guard.remaining());
    guard.release().await.unwrap();
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_shutdown_that_has_begun_ends_an_extended_hold() {
    let world = World::tuned(Kind::Ttl, |fake| fake);
    let guard = world.mutex("a").lock().await.unwrap();
    let (done, left) = tokio::join!(world.locker.shutdown(), async {
        time::sleep(ms(10)).await;
        let left = guard.extend(secs(60)).await;
        drop(guard);
        left
    });
    done.unwrap();
    assert!(left.as_ref().is_ok_and(|left| *left <= TTL), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn c6_a_release_is_retried_until_an_extended_lease_ends() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    guard.extend(secs(600)).await.unwrap();
    world.store.always(Op::Release, Fault::Fail(ErrorKind::Unavailable));
    drop(guard);
    time::sleep(TTL * 10).await;
    assert_eq!(world.store.holders(), 1);
    world.store.heal();
    time::sleep(secs(3)).await;
    assert_eq!(world.store.holders(), 0, "nobody gives back what lives for ten minutes");
    world.clean("").await;
}
