//! C7: tests that a release reports the truth, within its bound.

use tokio::time::{self, Instant};

use super::{World, manual, ms, options, secs};
use crate::{
    driver::{acquire::acquire, release::release_held, request::Bound},
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
    spi::{Descriptor, Exceptions, Released},
};

#[tokio::test(start_paused = true)]
async fn c7_after_an_unknown_release_not_held_means_freed_before_the_deadline() {
    for fault in [Fault::LoseReply, Fault::HangAfter] {
        let world = World::new(Kind::Ttl);
        let guard = world.mutex("a").lock().await.unwrap();
        world.store.once(Op::Release, [fault]);
        guard.release().await.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(world.store.count(Op::Release), 2);
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c7_not_held_is_reported_if_no_release_was_unknown() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.evict_all();
    world.store.once(Op::Release, [Fault::Fail(ErrorKind::Unavailable)]);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    world.clean("").await;
}

/// The release runs as in the background task, without the bound of a caller.
#[tokio::test(start_paused = true)]
async fn c7_after_an_unknown_release_not_held_past_the_deadline_is_an_unknown_outcome() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let options = manual();
    let held = acquire(world.request(&mutex, &super::checked(options)), Bound::Forever)
        .await
        .unwrap()
        .unwrap();
    time::sleep(ms(2_500)).await;
    world.store.once(Op::Release, [Fault::HangAfter]);
    held.give_back();
    world.agenda().retire(&held, None);
    let error = release_held(world.agenda(), held).await.unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(
        world.store.count(Op::Release),
        2,
        "the second one was answered, and proves nothing"
    );
    drop(mutex);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c5_a_refused_release_after_an_unanswered_one_is_an_unknown_outcome() {
    for first in [Fault::LoseReply, Fault::HangAfter] {
        let world = World::new(Kind::Ttl);
        let guard = world.mutex("a").lock().await.unwrap();
        world.store.once(Op::Release, [first, Fault::Fail(ErrorKind::Authentication)]);
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication);
        assert!(error.is_outcome_unknown(), "{first:?}: {error}");
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_is_bounded_by_twice_op_timeout_and_the_keeper_finishes_it() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        world.store.always(Op::Release, Fault::Hang);
        let start = Instant::now();
        let error = guard.release().await.unwrap_err();
        assert!(start.elapsed().abs_diff(secs(2)) <= ms(2), "{:?}", start.elapsed());
        assert!(error.is_outcome_unknown(), "{error}");
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some("release")));
        world.store.heal();
        time::sleep(secs(2)).await;
        assert_eq!(world.store.holder("a"), None, "{kind:?}");
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c13_an_error_promises_the_end_of_a_lease_only_where_there_is_one() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.always(Op::Release, Fault::Hang);
    let text = guard.release().await.unwrap_err().to_string();
    assert!(text.contains("the lease will end the lock"), "{text}");
    world.store.heal();
    world.clean("").await;
    let without = Descriptor {
        exceptions: Exceptions { no_lease: true, ..Exceptions::NONE },
        ..Descriptor::new("x")
    };
    let text = without.last_resort();
    assert!(!text.contains("lease"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_is_bounded_by_the_end_of_the_lease() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    time::sleep(ms(2_000)).await;
    let left = guard.remaining();
    world.store.always(Op::Release, Fault::Hang);
    let start = Instant::now();
    guard.release().await.unwrap_err();
    assert!(start.elapsed().abs_diff(left) <= ms(2), "{:?}", start.elapsed());
    world.store.heal();
    world.clean("").await;
}

/// The renewal in flight is answered after the holder gave the lock back. That is no loss.
#[tokio::test(start_paused = true)]
async fn c7_a_renewal_that_ends_when_the_release_has_begun_does_not_take_the_release_over() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let options = options();
    let held = acquire(world.request(&mutex, &super::checked(options)), Bound::Forever)
        .await
        .unwrap()
        .unwrap();
    world.store.once(Op::KeepAlive, [Fault::SlowReply(ms(300))]);
    time::sleep(ms(1_100)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    held.give_back();
    time::sleep(secs(1)).await; // the releasing thread is not scheduled for a while
    world.agenda().retire(&held, None);
    assert_eq!(release_held(world.agenda(), held).await.unwrap(), Released::Freed);
    assert_eq!(world.store.count(Op::KeepAlive), 1, "none after that");
    drop(mutex);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_released_soon() {
    for kind in KINDS {
        let world = World::new(kind);
        drop(world.mutex("a").lock().await.unwrap());
        time::sleep(ms(5)).await;
        world.clean_now(&format!("{kind:?}")).await;
    }
}
