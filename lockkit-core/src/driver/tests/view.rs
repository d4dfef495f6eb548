//! Tests of a view of a hold: it shows what the guard shows, and keeps nothing alive.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::{
    runtime::Handle,
    time::{self, Instant},
};

use super::{TTL, World, manual, ms, secs};
use crate::{
    Hold, LossReason,
    error::ErrorKind,
    fake::{KINDS, Kind},
    spi::{Note, Noted},
};

/// Checks the view after the guard gave the lock back.
async fn assert_ended(hold: &Hold) {
    assert!(!hold.is_held());
    assert!(hold.remaining().is_zero());
    let renewal = hold.renew().await.unwrap_err();
    assert_eq!((renewal.kind(), renewal.operation()), (ErrorKind::Lost, Some("renew")));
    assert!(renewal.to_string().contains("given up before"), "{renewal}");
    assert_eq!(hold.extend(TTL).await.unwrap_err().kind(), ErrorKind::Lost);
    let note = hold.write_note(&Note::default().next("late")).await.unwrap_err();
    assert_eq!(note.kind(), ErrorKind::Lost);
    assert!(!hold.lost().is_lost(), "it was given back");
}

#[tokio::test(start_paused = true)]
async fn a_view_ends_with_its_guard() {
    for by_drop in [false, true] {
        let world = World::new(Kind::Ttl);
        let mutex = world.mutex("a");
        let guard = mutex.lock().await.unwrap();
        let hold = guard.hold();
        let other = hold.clone();
        assert_eq!((hold.fencing_token(), hold.owner()), (guard.fencing_token(), guard.owner()));
        hold.renew().await.unwrap();
        let note = Note::default().next("in time");
        assert_eq!(hold.write_note(&note).await.unwrap(), Noted::Written);
        if by_drop {
            drop(guard);
        } else {
            guard.release().await.unwrap();
        }
        assert_ended(&hold).await;
        assert_ended(&other).await;
        // A view must not keep other tasks from the lock either.
        mutex.lock().await.unwrap().release().await.unwrap();
        drop(mutex);
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_view_reports_a_loss_as_the_guard_does() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let hold = guard.hold();
    let warned = tokio::spawn(async move {
        let left = hold.expiring(ms(500)).await;
        (left, hold.lost().await, hold)
    });
    let (left, reason, hold) = warned.await.unwrap();
    assert!(left <= ms(500) && !left.is_zero(), "{left:?}");
    assert_eq!(reason, LossReason::Expired);
    assert!(!guard.is_held());
    assert!(hold.renew().await.unwrap_err().to_string().contains("lost"));
    drop(guard);
    world.clean("").await;
}

/// The scope gives its guard back when it ends, even if its work keeps a view.
#[tokio::test(start_paused = true)]
async fn a_view_that_leaves_its_scope_keeps_nothing() {
    let world = World::new(Kind::Ttl);
    let mutex = world.mutex("a");
    let hold = mutex.scope(|hold| async move { hold }).await.unwrap();
    assert!(!hold.is_held());
    let guard = mutex.try_lock().await.unwrap().expect("it is free");
    assert!(guard.fencing_token() > hold.fencing_token());
    guard.release().await.unwrap();
    drop(mutex);
    world.clean("").await;
}

/// A view still works after its guard was leaked.
#[tokio::test(start_paused = true)]
async fn a_view_of_a_leaked_hold_renews_it() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    let hold = guard.hold();
    let lost = guard.leak();
    time::sleep(TTL - ms(500)).await;
    hold.renew().await.unwrap();
    time::sleep(ms(1_000)).await;
    assert!(hold.is_held() && !lost.is_lost());
    time::sleep(TTL).await;
    assert_eq!(lost.await, LossReason::Expired);
    assert!(!hold.is_held());
    world.clean("").await;
}

/// A view does not keep the background task at work, or the store connected.
#[tokio::test(start_paused = true)]
async fn a_view_does_not_keep_the_locker() {
    let World { store, locker } = World::new(Kind::Ttl);
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let hold = guard.hold();
    drop((guard, locker));
    time::sleep(secs(1)).await;
    assert_eq!(store.holders(), 0);
    assert_eq!(Arc::strong_count(&store), 1, "the backend is gone");
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
    assert!(!hold.is_held());
    assert_eq!(hold.renew().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// The call has sent its request and has the claim. Its caller keeps the call and does not poll it.
#[tokio::test(start_paused = true)]
async fn c7_a_call_that_is_not_polled_delays_no_release() {
    let calls: [fn(&Hold) -> BoxFuture<'_, ()>; 2] = [
        |hold| Box::pin(async { drop(hold.renew().await) }),
        |hold| Box::pin(async { drop(hold.write_note(&Note::default().next("late")).await) }),
    ];
    for kind in KINDS {
        for (n, call) in calls.into_iter().enumerate() {
            for by_drop in [false, true] {
                let world = World::new(kind);
                let mutex = world.mutex("a");
                let guard = mutex.lock().await.unwrap();
                let view = guard.hold();
                let mut calling = call(&view);
                time::timeout(ms(1), calling.as_mut()).await.unwrap_err();
                let begun = Instant::now();
                if by_drop {
                    drop(guard);
                } else {
                    guard.release().await.unwrap_or_else(|error| panic!("{kind:?}, {n}: {error}"));
                }
                let next = mutex.lock_timeout(TTL * 2).await;
                drop(next.unwrap_or_else(|error| panic!("{kind:?}, {n}: {error}")));
                assert!(begun.elapsed() < ms(500), "{kind:?}, {n}: {:?}", begun.elapsed());
                drop(calling);
                drop((view, mutex));
                world.clean(&format!("{kind:?}, {n}")).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_call_that_is_not_polled_delays_no_renewal() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let view = guard.hold();
    let note = Note::default().next("kept");
    let mut writing = Box::pin(view.write_note(&note));
    time::timeout(ms(1), writing.as_mut()).await.unwrap_err();
    time::sleep(TTL * 4).await;
    assert!(guard.is_held(), "the keeper renews");
    assert_eq!(writing.await.unwrap(), Noted::Written);
    drop((view, guard));
    world.clean("").await;
}
