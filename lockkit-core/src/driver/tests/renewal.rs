//! C1, C10: tests of locks that are kept, and of renewals that end before the release is sent.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    time,
};

use super::{World, ms, options, runtimes::until, secs};
use crate::{
    Locker,
    error::ErrorKind,
    fake::{Fake, Fault, KINDS, Kind, Op, Store, lock},
};

#[tokio::test(start_paused = true)]
async fn c1_c4_holders_exclude_each_other_and_tokens_rise() {
    for kind in KINDS {
        let world = World::new(kind);
        let inside = Arc::new(AtomicU32::new(0));
        let last = Arc::new(Mutex::new(0));
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let mutex = world.mutex("a");
            let inside = Arc::clone(&inside);
            let last = Arc::clone(&last);
            tasks.push(tokio::spawn(async move {
                for _ in 0..20 {
                    let guard = mutex.lock().await.unwrap();
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    let before = std::mem::replace(&mut *lock(&last), guard.fencing_token().get());
                    assert!(before < guard.fencing_token().get());
                    time::sleep(ms(1)).await;
                    inside.fetch_sub(1, SeqCst);
                    guard.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_live_holder_keeps_its_lock() {
    for kind in KINDS {
        let world = World::new(kind);
        let guard = world.mutex("a").lock().await.unwrap();
        time::sleep(secs(60)).await;
        assert!(guard.is_held(), "{kind:?}");
        assert_eq!(world.store.holder("a"), Some(guard.owner()));
        assert!(world.mutex("a").try_lock().await.unwrap().is_none());
        let renewals = world.store.count(Op::KeepAlive);
        assert!((55..=68).contains(&renewals), "{renewals} renewals in 20 leases, {kind:?}");
        drop(guard);
        world.clean(&format!("{kind:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_release_joins_the_renewal_in_flight() {
    // The renewal is due within 900 to 1,000 ms and takes `slow`.
    for slow in [1, 5, 50, 300] {
        for at in (960..1_010).chain([1_100, 1_250]) {
            let world = World::new(Kind::Ttl);
            world.store.set_latency(Duration::ZERO);
            let guard = world.mutex("a").lock().await.unwrap();
            world.store.set_latency(ms(slow));
            time::sleep(ms(at)).await;
            if at % 2 == 0 {
                guard
                    .release()
                    .await
                    .unwrap_or_else(|error| panic!("slow {slow}, at {at}: {error}"));
            } else {
                drop(guard);
            }
            time::sleep(secs(5)).await;
            assert_eq!(world.store.count(Op::Release), 1, "slow {slow}, at {at}");
            assert_eq!(world.store.renewals_after_release(), 0, "slow {slow}, at {at}");
            world.clean("").await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_release_is_sent_only_when_the_renewal_in_flight_has_ended() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::SlowReply(ms(500))]);
    time::sleep(ms(1_050)).await;
    let renewal = world.store.sent(Op::KeepAlive)[0];
    guard.release().await.unwrap();
    assert!(world.store.sent(Op::Release)[0] >= renewal + ms(500));
    world.clean("").await;
}

#[test]
fn c10_releases_race_renewals_on_threads() {
    // Renewals are due every 20 ms, and releases come at random.
    let runtime = Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let store = Store::new(0);
    let locker = Locker::new(Fake::new(Arc::clone(&store), Kind::Ttl));
    let locker = locker.with_defaults(options().with_ttl(ms(60))).unwrap();
    runtime.block_on(async {
        let mut tasks = Vec::new();
        for i in 0..32 {
            let mutex = locker.mutex(&format!("k{i}")).unwrap();
            tasks.push(tokio::spawn(async move {
                for n in 0..60 {
                    // A machine that stops for a whole lease may fail both calls.
                    let Ok(guard) = mutex.lock().await else { continue };
                    time::sleep(Duration::from_micros(rand::random_range(0..40_000))).await;
                    if n % 2 == 0 {
                        let _ = guard.release().await;
                    }
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        locker.shutdown().await.unwrap();
        // The shutdown gives up if this machine stops for some leases.
        let left = || (locker.keeper.agenda().sizes(), store.live_claims());
        until("nothing is left", || left() == ((0, 0), 0)).await;
        assert_eq!(store.renewals_after_release(), 0);
    });
}

#[tokio::test(start_paused = true)]
async fn c10_unknown_renewals_pause_longer_and_neither_extend_nor_end_the_lease() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    let deadline = time::Instant::now() + guard.remaining();
    world.store.always(Op::KeepAlive, Fault::Fail(ErrorKind::Unavailable));
    time::sleep(ms(2_900)).await;
    assert!(guard.is_held(), "not ended");
    assert_eq!(time::Instant::now() + guard.remaining(), deadline, "not extended");
    let sent = world.store.sent(Op::KeepAlive);
    let pauses: Vec<_> = sent.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    // ttl/24, ttl/12 and ttl/6, plus the millisecond to the store.
    let expected: Vec<_> =
        [126, 251].into_iter().chain(std::iter::repeat(501)).take(pauses.len()).collect();
    assert!(pauses.len() >= 4, "{pauses:?}");
    assert!(
        pauses.iter().zip(&expected).all(|(pause, expected)| pause.abs_diff(*expected) <= 2),
        "{pauses:?}"
    );
    world.store.heal();
    time::sleep(secs(20)).await;
    assert!(!guard.is_held(), "it healed after the deadline");
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_the_renewal_pace_recovers_after_unknown_renewals() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world
        .store
        .once(Op::KeepAlive, [Fault::Hang, Fault::LoseReply, Fault::Fail(ErrorKind::Unavailable)]);
    time::sleep(secs(30)).await;
    assert!(guard.is_held());
    let sent = world.store.sent(Op::KeepAlive);
    let pauses = sent.windows(2).skip(4).map(|pair| (pair[1] - pair[0]).as_millis());
    assert!(
        pauses.clone().all(|pause| (880..=1_010).contains(&pause)),
        "{:?}",
        pauses.collect::<Vec<_>>()
    );
    world.store.forget_log();
    world.store.once(Op::KeepAlive, [Fault::Fail(ErrorKind::Unavailable)]);
    time::sleep(ms(1_500)).await;
    let sent = world.store.sent(Op::KeepAlive);
    assert!((sent[1] - sent[0]).abs_diff(ms(126)) <= ms(2), "a new streak begins short");
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_a_renewal_takes_at_most_op_timeout_or_the_rest_of_the_lease() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.always(Op::KeepAlive, Fault::Hang);
    let start = time::Instant::now();
    guard.renew().await.unwrap_err();
    assert!(start.elapsed().abs_diff(secs(1)) <= ms(2), "op_timeout, not {:?}", start.elapsed());
    time::sleep_until(start + ms(2_500)).await;
    guard.renew().await.unwrap_err();
    assert!(start.elapsed() < TTL_LESS_DRIFT, "the rest of the lease, not {:?}", start.elapsed());
    drop(guard);
    world.store.heal();
    world.clean("").await;
}

/// 1 % and 2 ms less than the ttl, plus one tick of the timers.
const TTL_LESS_DRIFT: Duration = ms(2_968 + 2);

#[tokio::test(start_paused = true)]
async fn c3_a_renewed_lease_counts_from_before_the_request() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.once(Op::KeepAlive, [Fault::SlowReply(ms(500))]);
    let start = time::Instant::now();
    guard.renew().await.unwrap();
    assert_eq!((guard.remaining() + start.elapsed()).as_millis(), 2_968);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_a_shorter_lease_than_asked_is_renewed_in_time() {
    let world = World::new(Kind::Ttl);
    world.store.set_lease(crate::spi::Lease::For(ms(300)));
    let guard = world.mutex("a").lock().await.unwrap();
    assert!(guard.remaining() < ms(300));
    time::sleep(secs(10)).await;
    assert!(guard.is_held());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_a_lease_that_was_cut_short_is_made_whole_soon_unless_the_hold_is_over() {
    let world = World::new(Kind::Ttl);
    world.store.set_lease(crate::spi::Lease::For(ms(1_200)));
    let guard = world.mutex("a").lock().await.unwrap();
    time::sleep(ms(45)).await;
    guard.release().await.unwrap();
    assert_eq!(world.store.count(Op::KeepAlive), 0);
    let guard = world.mutex("a").lock().await.unwrap();
    time::sleep(ms(60)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    // This store never gives a longer lease, so another request at once would not help.
    time::sleep(ms(300)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 1);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_shard_does_not_starve_the_others() {
    let world = World::new(Kind::Ttl);
    let mut guards = Vec::new();
    for name in (0..5_000).map(|i| format!("dead{i}")).chain((0..100).map(|i| format!("live{i}"))) {
        guards.push(world.mutex_with(&name, options().with_ttl(secs(9))).lock().await.unwrap());
    }
    world.store.kill_shard();
    time::sleep(secs(30)).await;
    assert!(guards[..5_000].iter().all(|guard| !guard.is_held()));
    assert!(guards[5_000..].iter().all(|guard| guard.is_held()));
    drop(guards);
    time::sleep(secs(10)).await;
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_thousand_guards_are_kept_by_one_task() {
    let world = World::new(Kind::Ttl);
    world.store.set_latency(Duration::ZERO);
    let mut guards = Vec::new();
    for i in 0..100_000 {
        guards.push(world.mutex(&format!("k{i}")).lock().await.unwrap());
    }
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
    assert_eq!(world.sizes(), (100_000, 0));
    time::sleep(secs(4)).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    assert_eq!(Handle::current().metrics().num_alive_tasks(), 1);
    drop(guards);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn short_locks_leave_no_timer() {
    let world = World::new(Kind::Ttl);
    for _ in 0..1_000 {
        let guard = world.mutex("a").lock().await.unwrap();
        assert_eq!(world.sizes(), (1, 0));
        guard.release().await.unwrap();
        assert_eq!(world.sizes(), (0, 0));
    }
    world.clean("").await;
}
