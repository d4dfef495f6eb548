//! C10: tests of stores that want renewals more often, or all at once.

use std::time::Duration;

use tokio::time::{self, Instant};

use super::{World, manual, ms, options, secs};
use crate::{
    fake::{Fault, Kind, Op},
    spi::{Descriptor, RenewalPacing},
};

fn world(longest: Duration, together: bool) -> World {
    World::tuned(Kind::Ttl, |fake| {
        fake.described(|it| Descriptor {
            renewal_pacing: RenewalPacing { longest, together },
            ..it
        })
    })
}

fn pauses(sent: &[Instant]) -> Vec<Duration> {
    sent.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[tokio::test(start_paused = true)]
async fn c10_each_renewal_follows_within_the_longest_pause() {
    for together in [false, true] {
        let world = world(secs(2), together);
        let start = Instant::now();
        let guard = world.mutex_with("a", options().with_ttl(secs(600))).lock().await.unwrap();
        time::sleep(secs(120)).await;
        let sent = world.store.sent(Op::KeepAlive);
        assert!(sent[0] - start <= ms(2_010));
        let pauses = pauses(&sent);
        // The slots of a ttl of ten minutes would be 50 s apart. Renewals must neither loop until
        // the next slot, nor wait for it.
        assert!(pauses.iter().all(|pause| (ms(1_300)..=ms(2_010)).contains(pause)), "{pauses:?}");
        drop(guard);
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_ttl_that_asks_for_more_renewals_gets_them() {
    let world = world(secs(2), false);
    let guard = world.mutex("a").lock().await.unwrap();
    time::sleep(secs(30)).await;
    let pauses = pauses(&world.store.sent(Op::KeepAlive));
    assert!(pauses.iter().all(|pause| *pause <= ms(1_010)), "a third of 3 s: {pauses:?}");
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_unknown_renewals_keep_the_longest_pause() {
    for fault in [Fault::Fail(crate::error::ErrorKind::Unavailable), Fault::LoseReply] {
        let world = world(secs(2), false);
        let guard = world.mutex_with("a", options().with_ttl(secs(600))).lock().await.unwrap();
        world.store.always(Op::KeepAlive, fault);
        time::sleep(secs(60)).await;
        let pauses = pauses(&world.store.sent(Op::KeepAlive));
        assert!(pauses.len() >= 25 && pauses.iter().all(|pause| *pause <= ms(2_010)), "{pauses:?}");
        world.store.heal();
        drop(guard);
        world.clean("").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_a_hold_renewed_by_hand_has_no_renewal_pacing() {
    let world = world(ms(100), true);
    let guard = world.mutex_with("a", manual()).lock().await.unwrap();
    time::sleep(ms(2_500)).await;
    assert_eq!(world.store.count(Op::KeepAlive), 0);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_holds_are_renewed_at_common_instants() {
    let world = world(Duration::MAX, true);
    let mut guards = Vec::new();
    for i in 0..500 {
        let mutex = world.mutex_with(&format!("k{i}"), options().with_ttl(secs(30)));
        guards.push(mutex.lock().await.unwrap());
        time::sleep(ms(17)).await;
    }
    time::sleep(secs(300)).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    let mut sent = world.store.sent(Op::KeepAlive);
    let requests = sent.len();
    assert!((500 * 28..500 * 50).contains(&requests), "{requests} renewals in ten leases");
    sent.sort();
    sent.dedup();
    assert!(sent.len() <= 126, "{requests} renewals at {} instants, in slots of 2.5 s", sent.len());
    drop(guards);
    world.clean("").await;
}
