//! Tests of the attachment that a store gives with a lock, and how it hears of a dropped guard.

use std::time::Duration;

use tokio::time;

use super::{World, ms, options, secs};
use crate::{
    fake::{Attaches, Fake, Fault, KINDS, Kind, Note, Op},
    spi::Attachment,
};

#[derive(Debug)]
struct Other;

impl Attachment for Other {}

fn world(kind: Kind, attaches: Attaches) -> World {
    World::tuned(kind, |fake: Fake| fake.with_attachment(attaches))
}

#[tokio::test(start_paused = true)]
async fn a_guard_gives_the_attachment_of_its_own_grant() {
    for kind in KINDS {
        let world = world(kind, Attaches::Note);
        let a = world.mutex("a").lock().await.unwrap();
        let b = world.mutex("b").lock().await.unwrap();
        for guard in [&a, &b] {
            assert_eq!(guard.attachment::<Note>().unwrap().owner, guard.owner());
            assert!(guard.attachment::<Other>().is_none(), "another type");
        }
        assert!(world.mutex("a").try_lock().await.unwrap().is_none());
        time::sleep(secs(10)).await;
        assert_eq!(
            world.store.count(Op::Attachment),
            2,
            "once for each grant, also after renewals"
        );
        drop((a, b));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_without_attachments_gives_none() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    assert!(guard.attachment::<Note>().is_none());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_an_observer_hears_of_a_dropped_guard_once_and_before_the_release() {
    for kind in KINDS {
        let world = world(kind, Attaches::Note);
        let guard = world.mutex("a").lock().await.unwrap();
        let lost = guard.lost();
        world.store.forget_log();
        drop(guard);
        assert_eq!(world.store.ops(), [Op::GuardDropped], "by the drop itself");
        time::sleep(ms(50)).await;
        assert_eq!(world.store.ops(), [Op::GuardDropped, Op::Release], "{kind:?}");
        drop(lost);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c7_the_release_waits_until_observers_heard_of_the_drop() {
    let world = world(Kind::Ttl, Attaches::Slow);
    world.store.set_latency(Duration::ZERO);
    let guard = world.mutex_with("a", options().with_ttl(secs(60))).lock().await.unwrap();
    world.store.forget_log();
    // Not on a worker, because then the workers are free to run the background task meanwhile.
    tokio::task::spawn_blocking(move || drop(guard)).await.unwrap();
    world.locker.shutdown().await.unwrap();
    assert_eq!(world.store.ops(), [Op::GuardDropped, Op::Release, Op::Close]);
}

#[tokio::test(start_paused = true)]
async fn c7_a_released_guard_was_not_dropped() {
    for kind in KINDS {
        let world = world(kind, Attaches::Note);
        let guard = world.mutex("a").lock().await.unwrap();
        guard.release().await.unwrap();
        world.mutex("a").scope(async |_| ()).await.unwrap();
        // A release that has begun counts as a release, even if it is dropped midway.
        for cut in 0..4 {
            let guard = world.mutex("a").lock().await.unwrap();
            let _ = time::timeout(Duration::from_micros(cut * 700), guard.release()).await;
            time::sleep(ms(50)).await;
        }
        assert_eq!(world.store.count(Op::GuardDropped), 0, "{kind:?}");
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_release_that_never_began_is_a_drop() {
    let world = world(Kind::Ttl, Attaches::Note);
    drop(world.mutex("a").lock().await.unwrap().release());
    time::timeout(ms(50), world.mutex("b").scope(async |_| std::future::pending::<()>().await))
        .await
        .unwrap_err();
    time::sleep(ms(50)).await;
    assert_eq!(
        world.store.count(Op::GuardDropped),
        2,
        "the one that was not polled, and the cancelled scope"
    );
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c7_an_observer_hears_of_the_drop_of_a_lost_guard_too() {
    let world = world(Kind::Ttl, Attaches::Note);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.always(Op::KeepAlive, Fault::Hang);
    time::sleep(secs(5)).await;
    assert!(!guard.is_held());
    world.store.heal();
    drop(guard);
    assert_eq!(world.store.count(Op::GuardDropped), 1);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c6_an_abandoned_grant_has_no_guard_to_drop() {
    let world = world(Kind::Ttl, Attaches::Note);
    world.store.set_latency(ms(100));
    time::timeout(ms(20), world.mutex("a").lock()).await.unwrap_err();
    time::sleep(ms(300)).await;
    assert_eq!(world.store.ops(), [Op::Attempt, Op::Release]);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_a_panic_in_attachment_costs_the_attachment_only() {
    for kind in KINDS {
        let world = world(kind, Attaches::Panic);
        let guard = world.mutex("a").lock().await.unwrap();
        assert!(guard.attachment::<Note>().is_none());
        time::sleep(secs(10)).await;
        assert!(guard.is_held(), "renewed");
        guard.release().await.unwrap();
        drop(world.mutex("a").try_lock().await.unwrap().expect("free"));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c13_a_panic_in_guard_dropped_still_releases() {
    for kind in KINDS {
        let world = world(kind, Attaches::Bomb);
        drop(world.mutex("a").lock().await.unwrap());
        // A second panic while one unwinds would end the process.
        let mutex = world.mutex("b");
        let task = tokio::spawn(async move {
            let _guard = mutex.lock().await.unwrap();
            panic!("of the holder");
        });
        assert!(task.await.unwrap_err().is_panic());
        time::sleep(ms(50)).await;
        assert_eq!((world.store.count(Op::GuardDropped), world.store.count(Op::Release)), (2, 2));
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c13_a_panic_in_guard_released_still_releases() {
    for kind in KINDS {
        let world = world(kind, Attaches::Bomb);
        let guard = world.mutex("a").lock().await.unwrap();
        guard.release().await.unwrap();
        world.clean(&format!("{kind:?}")).await;
    }
}
