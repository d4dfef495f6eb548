//! Queues: which waiter is woken, and by which claim.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Backend as _, ClaimSpec, Mode, Released, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

#[tokio::test]
async fn c1_a_waiter_behind_one_that_gave_up_is_not_yet_the_first() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let mut claims = [(); 4].map(|()| claim(&zk, "a"));
    granted(claims[0].attempt(Wait::Queue).await);
    for waiter in &mut claims[1..] {
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
    }
    let [holder, gives_up, gone, last] = &mut claims;
    // The claim releases a lock that it never held.
    assert_eq!(gives_up.release().await.unwrap(), Released::NotHeld);
    woken(gone).await;
    assert!(busy(gone.attempt(Wait::Queue).await).0, "its predecessor was no holder");
    // Now this claim is right behind the holder, and the last claim is right behind this one.
    assert_eq!(gone.release().await.unwrap(), Released::NotHeld);
    woken(last).await;
    assert!(busy(last.attempt(Wait::Queue).await).0);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    woken(last).await;
    granted(last.attempt(Wait::Queue).await);
    assert_eq!(last.release().await.unwrap(), Released::Freed);
    drop(claims);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c1_a_waiter_whose_predecessors_leave_at_once_lists_the_folder_again() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let mut claims = [(); 3].map(|()| claim(&zk, "a"));
    granted(claims[0].attempt(Wait::Queue).await);
    assert!(busy(claims[1].attempt(Wait::Queue).await).0);
    assert!(busy(claims[2].attempt(Wait::Queue).await).0);
    given_up(claims[1].release()).await;
    given_up(claims[0].release()).await;
    let [_, _, last] = &mut claims;
    granted(last.attempt(Wait::Queue).await);
    given_up(last.release()).await;
    bed.assert_clean().await;
}

/// There is no poll here: a wake-up that is lost between a look and its watch fails the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_hand_overs_that_race_with_watches_lose_no_wake_up() {
    let bed = Bed::shared();
    let sessions = [Arc::new(bed.connect("").await), Arc::new(bed.connect("").await)];
    let last = Arc::new(tokio::sync::Mutex::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let zk = Arc::clone(&sessions[task % 2]);
        let last = Arc::clone(&last);
        tasks.spawn(async move {
            for round in 0..60 {
                let mut claim = claim(&zk, "a");
                let token = lock(&mut claim).await.token.get();
                {
                    let mut last = last.try_lock().expect("two holders");
                    assert!(token > *last, "{token} after {last}");
                    *last = token;
                    tokio::task::yield_now().await;
                }
                // Some claims leave the release to the session.
                if round % 3 == 0 {
                    drop(claim);
                } else {
                    assert_eq!(claim.release().await.unwrap(), Released::Freed);
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    bed.assert_clean().await;
}

#[tokio::test]
async fn many_lockers_of_one_machine_use_one_connection_each() {
    let bed = Bed::shared();
    let mut lockers = Vec::new();
    for _ in 0..70 {
        lockers.push(bed.locker("").await);
    }
    let mut guards = Vec::new();
    for (n, locker) in lockers.iter().enumerate() {
        for lock in 0..3 {
            guards.push(locker.mutex(&format!("{n}-{lock}")).unwrap().lock().await.unwrap());
        }
    }
    assert_eq!(bed.connections(), 70);
    for guard in guards {
        guard.release().await.unwrap();
    }
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
    until("all are gone", async || bed.connections() == 0).await;
    bed.assert_clean().await;
}

/// A watch fires once, also for a change of no importance.
#[tokio::test]
async fn c1_c8_a_waiter_is_neither_granted_nor_kept_busy_by_a_change_of_its_predecessor() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut holder = claim(&zk, "a");
    let mut second = claim(&zk, "a");
    let mut third = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    assert!(busy(second.attempt(Wait::Queue).await).0);
    assert!(busy(third.attempt(Wait::Queue).await).0);
    let nodes = admin.children(&folder).await;
    for (waiter, predecessor) in [&mut second, &mut third].into_iter().zip(&nodes) {
        let path = format!("{folder}/{predecessor}");
        admin.0.set_data(&path, b"changed", None).await.unwrap();
        woken(waiter).await;
        assert!(busy(waiter.attempt(Wait::Queue).await).0, "its predecessor still stands");
        let again = timeout(Duration::from_millis(100), waiter.changed()).await;
        assert!(again.is_err(), "woken by what it has seen");
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    woken(&mut second).await;
    granted(second.attempt(Wait::Queue).await);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    woken(&mut third).await;
    granted(third.attempt(Wait::Queue).await);
    assert_eq!(third.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

/// Each waiter watches only the one before it, whose node stays. So a granted waiter must mark its
/// node.
#[tokio::test]
async fn c8_one_release_wakes_all_waiters_that_its_permits_satisfy() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let permits = |count: u32| {
        let name = LockName::new(Kind::Semaphore, "a").unwrap();
        let [count, limit] = [count, 3].map(|n| NonZeroU32::new(n).unwrap());
        let mode = Mode::Permits { count, limit };
        zk.claim(ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT)).unwrap()
    };
    let mut holder = permits(3);
    granted(holder.attempt(Wait::Queue).await);
    let mut waiters = [permits(1), permits(1), permits(1)];
    for waiter in &mut waiters {
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    for waiter in &mut waiters {
        woken(waiter).await;
        granted(waiter.attempt(Wait::Queue).await);
    }
    drop((holder, waiters));
    bed.assert_clean().await;
}

#[tokio::test]
async fn c6_a_claim_that_has_ended_is_not_looked_after_any_more() {
    let bed = Bed::shared();
    for query in ["", "fair=false"] {
        let bed = Bed { prefix: format!("{}-{}", bed.prefix, query.len()), ..bed.clone() };
        let zk = bed.connect(query).await;
        let (mut ended, signal) = waiter(&zk, "a");
        granted(ended.attempt(Wait::Queue).await);
        assert!(Arc::weak_count(&signal) > 0);
        assert_eq!(ended.release().await.unwrap(), Released::Freed);
        drop(ended);
        assert_eq!(Arc::weak_count(&signal), 0, "its session still knows it");
    }
}
