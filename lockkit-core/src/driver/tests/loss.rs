//! C3: tests of losses that only the deadline shows, and of those that the store reports.

use std::time::Duration;

use tokio::time::{self, Instant};

use super::{TTL, World, manual, ms, secs};
use crate::{
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
    spi::LossReason,
};

#[tokio::test(start_paused = true)]
async fn c3_a_silent_store_means_lost_before_the_ttl() {
    let world = World::new(Kind::Ttl);
    let start = Instant::now();
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.always(Op::KeepAlive, Fault::Hang);
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!((2_968..2_972).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_once_lost_is_always_lost() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let lost = guard.lost();
    // The renewal was applied in time and answered too late, so the store still has the lock.
    world.store.always(Op::KeepAlive, Fault::SlowReply(secs(5)));
    time::sleep(TTL).await;
    assert!(!guard.is_held());
    assert!(lost.is_lost());
    world.store.heal();
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    time::sleep(secs(10)).await;
    assert!(!guard.is_held() && lost.is_lost());
    assert_eq!(world.store.holder("a"), None, "freed early, though the guard is still there");
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_an_eviction_is_noticed_with_the_next_renewal() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        world.store.evict_all();
        let start = Instant::now();
        assert_eq!(guard.lost().await, LossReason::Evicted);
        assert!(start.elapsed() < ms(1_010), "{kind:?} {:?}", start.elapsed());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c3_a_renewal_without_an_answer_does_not_delay_the_signal() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let deadline = Instant::now() + guard.remaining();
    world.store.always(Op::KeepAlive, Fault::Hang);
    let lost = guard.lost();
    let signal = tokio::spawn(async move { (lost.await, Instant::now()) });
    let (reason, at) = signal.await.unwrap();
    assert_eq!(reason, LossReason::Expired);
    assert!(at >= deadline && at <= deadline + ms(2));
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_no_loss_is_signalled_after_a_release() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let early = guard.lost();
    let late = guard.lost();
    let early = tokio::spawn(async move { early.await });
    time::sleep(ms(10)).await;
    guard.release().await.unwrap();
    time::timeout(secs(60), late.wait()).await.unwrap_err();
    assert!(!late.is_lost());
    assert!(!early.is_finished());
    early.abort();
    drop(late);
    assert!(early.await.unwrap_err().is_cancelled());
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_work_stops_when_the_lock_is_lost() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let error = mutex
        .scope(async |hold| {
            assert!(hold.is_held());
            world.store.evict_all();
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(mutex.scope(async |_| 8).await.unwrap(), 8);
    drop(mutex);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_work_that_ends_after_the_deadline_is_not_called_done() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let busy = async { time::advance(TTL).await };
    assert_eq!(guard.run(busy).await.unwrap_err().kind(), ErrorKind::Lost);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_scope_reports_an_unnoticed_eviction_at_its_end() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let outcome = mutex.scope(async |_| world.store.evict_all()).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost);
    drop(mutex);
    world.clean("").await;
}
