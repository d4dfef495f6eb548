//! Tests of manual renewal, and of renewals by hand beside automatic ones.

use std::sync::Arc;

use tokio::{
    runtime::Builder,
    time::{self, Instant},
};

use super::{TTL, World, manual, ms, secs};
use crate::{
    driver::{acquire::acquire, release::release_held, renew::renew_due, request::Bound},
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
    spi::{Lease, LossReason, Released, Wakeable as _},
};

#[tokio::test(start_paused = true)]
async fn a_manual_guard_ends_with_its_lease_and_is_never_renewed_by_itself() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let start = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(start.elapsed() < TTL);
    assert_eq!(world.store.count(Op::KeepAlive), 0);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn renewing_by_hand_keeps_the_lock_and_causes_no_other_renewals() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    for _ in 0..10 {
        time::sleep(ms(2_500)).await;
        guard.renew().await.unwrap();
        assert!(guard.remaining() > ms(2_960));
    }
    assert_eq!(world.store.count(Op::KeepAlive), 10);
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert_eq!(world.store.count(Op::KeepAlive), 10);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_by_hand_at_the_very_deadline_causes_no_other_renewal() {
    for early in 0..40 {
        let world = World::new(Kind::Ttl);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        time::sleep(guard.remaining() - ms(early)).await;
        let _ = guard.renew().await;
        time::sleep(ms(2_000)).await;
        assert!(world.store.count(Op::KeepAlive) <= 1, "{early} ms early");
        drop(guard);
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_by_hand_moves_the_next_automatic_one() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    time::sleep(ms(800)).await;
    guard.renew().await.unwrap();
    time::sleep(ms(850)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    time::sleep(ms(200)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 2);
    assert_eq!(world.sizes(), (1, 0));
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_renewing_an_evicted_lock_reports_the_loss() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        world.store.once(Op::KeepAlive, [Fault::Fail(ErrorKind::Unavailable)]);
        assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(guard.is_held(), "unknown is not lost");
        world.store.evict_all();
        assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        assert!(!guard.is_held());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_manual_guard_leaves_nothing_behind() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        assert_eq!(world.sizes(), (1, 0), "{kind:?}");
        guard.renew().await.unwrap();
        assert_eq!(world.sizes(), (1, 0), "{kind:?}");
        guard.release().await.unwrap();
        assert_eq!(world.sizes(), (0, 0), "{kind:?}");
        drop(world.mutex_with("b", manual()).lock().await.unwrap());
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_automatic_renewal_is_skipped_after_a_manual_one() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    time::sleep(ms(850)).await;
    world.store.once(Op::KeepAlive, [Fault::SlowReply(ms(300))]);
    guard.renew().await.unwrap(); // the automatic one came due meanwhile
    time::sleep(ms(400)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    time::sleep(ms(600)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 2);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_renewal_that_is_answered_after_the_deadline_is_a_loss() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let mut renewing = Box::pin(guard.renew());
    time::timeout(ms(1), renewing.as_mut()).await.unwrap_err();
    time::advance(TTL).await;
    assert_eq!(renewing.await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!guard.is_held());
    drop(guard);
    world.clean("").await;
}

/// The timer was taken at the moment when a renewal by hand moved the deadline.
#[tokio::test(start_paused = true)]
async fn a_timer_that_came_due_too_early_renews_no_manual_hold() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let options = manual();
    let held = acquire(world.request(&mutex, &super::checked(options)), Bound::Forever)
        .await
        .unwrap()
        .unwrap();
    renew_due(world.agenda(), Arc::clone(&held)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 0);
    assert_eq!(world.sizes(), (1, 0));
    world.agenda().retire(&held, None);
    assert_eq!(release_held(world.agenda(), held).await.unwrap(), Released::Freed);
    drop(mutex);
    world.clean("").await;
}

/// A future that has the claim and is not polled must not make the background task spin past the
/// deadline.
#[test]
fn an_unpolled_renewal_hides_no_loss_and_makes_no_busy_loop() {
    for options in [manual(), super::options()] {
        let (done, proof) = std::sync::mpsc::channel();
        let work = async move {
            let world = World::new(Kind::Ttl);
            let guard = world.mutex_with("a", options).lock().await.unwrap();
            world.store.always(Op::KeepAlive, Fault::Hang);
            let mut renewing = Box::pin(guard.renew());
            time::timeout(ms(1), renewing.as_mut()).await.unwrap_err();
            time::sleep(TTL).await;
            assert!(guard.lost().is_lost());
            time::sleep(secs(9)).await;
            drop(renewing);
            drop(guard);
            world.store.heal();
            world.clean("").await;
            done.send(()).unwrap();
        };
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
            runtime.unwrap().block_on(work);
        });
        proof.recv_timeout(secs(60)).expect("a paused clock stands still while something spins");
    }
}

#[tokio::test(start_paused = true)]
async fn c7_many_renewals_in_flight_do_not_keep_a_release_from_being_sent() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex_with("a", manual()).lock().await.unwrap();
        world.store.once(Op::KeepAlive, [Fault::Hang; 3]);
        {
            let renewals = futures_util::future::join3(guard.renew(), guard.renew(), guard.renew());
            time::timeout(ms(50), renewals).await.unwrap_err();
        }
        drop(guard);
        time::sleep(secs(4)).await;
        assert_eq!(world.store.count(Op::Release), 1, "{kind:?}");
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_inspection_of_a_manual_hold_does_not_extend_it() {
    let world = World::new(Kind::Push);
    world.store.set_lease(Lease::For(TTL));
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let start = Instant::now();
    time::sleep(TTL / 2).await;
    world.store.wake_all();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(start.elapsed() <= TTL, "{:?}", start.elapsed());
    assert_eq!(world.store.count(Op::KeepAlive), 1, "it was looked at");
    drop(guard);
    world.clean("").await;
}

/// A store's report of a long lease is as old as its answer, so a look asks for the whole rest.
#[tokio::test(start_paused = true)]
async fn c2_an_inspection_does_not_shorten_an_extension() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    guard.extend(secs(60)).await.unwrap();
    let before = guard.remaining();
    world.store.set_latency(ms(400));
    guard.lost().0.wake();
    time::sleep(ms(500)).await;
    let now = guard.remaining();
    assert!(now >= before - ms(505), "{:?} are gone", before - now);
    drop(guard);
    world.clean("").await;
}
