//! Tests of the events that an observer hears.

use std::sync::{Arc, Mutex};

use tokio::time;

use super::{World, ms, options, runtimes};
use crate::{
    Clock,
    error::ErrorKind,
    fake::{Fault, Kind, Op, lock},
    observe::{Event, Observer, What},
};

#[derive(Debug, Default)]
struct Ear {
    heard: Mutex<Vec<String>>,
    /// The observer panics at events that begin with this text.
    afraid_of: Option<&'static str>,
}

impl Observer for Ear {
    fn on_event(&self, event: &Event<'_>) {
        let what = match &event.what {
            What::Abandoned { .. } => "abandoned".to_owned(),
            What::Acquired { token, attempts, .. } => format!("acquired {token} by {attempts}"),
            What::Asked => "asked".to_owned(),
            What::Failed { error } => format!("failed {:?}", error.kind()),
            What::GivenBack { token, .. } => format!("given back {token}"),
            What::Lost { token, reason, .. } => format!("lost {token} {reason:?}"),
            What::Refused { error, .. } => format!("refused {:?}", error.kind()),
            What::Released { token, outcome } => format!("released {token} {outcome:?}"),
            What::Renewed { token, .. } => format!("renewed {token}"),
            What::RenewalFailed { error } => format!("not renewed {:?}", error.kind()),
            What::TimedOut { .. } => "timed out".to_owned(),
        };
        assert_eq!(event.name.as_str(), "a");
        let afraid = self.afraid_of.is_some_and(|word| what.starts_with(word));
        lock(&self.heard).push(what);
        assert!(!afraid, "as ordered");
    }
}

fn world(kind: Kind, ear: &Arc<Ear>) -> World {
    let ear: Arc<Ear> = Arc::clone(ear);
    World::built(kind, |builder| builder.observer(ear))
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_the_life_of_a_lock() {
    let ear = Arc::new(Ear::default());
    let world = world(Kind::Ttl, &ear);
    world.store.once(Op::Attempt, [Fault::LoseReply]);
    let guard = world.mutex("a").lock().await.unwrap();
    assert!(world.mutex("a").try_lock().await.unwrap().is_none());
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.evict_all();
    guard.lost().await;
    drop(guard);
    time::sleep(ms(50)).await;
    world.store.set_latency(ms(100));
    time::timeout(ms(60), world.mutex("a").lock()).await.unwrap_err();
    world.store.set_latency(ms(2));
    world.clean("").await;
    assert_eq!(
        *lock(&ear.heard),
        [
            "asked",
            "failed Unavailable",
            "acquired 1 by 2",
            "asked",
            "timed out",
            "renewed 1",
            "given back 1",
            "released 1 Freed",
            "asked",
            "acquired 2 by 1",
            "lost 2 Evicted",
            "released 2 NotHeld",
            "asked",
            "abandoned",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_hurts_no_lock() {
    let words = [
        "abandoned",
        "acquired",
        "asked",
        "failed",
        "given",
        "lost",
        "not",
        "released",
        "renewed",
        "timed out",
    ];
    for word in words {
        let ear = Arc::new(Ear { afraid_of: Some(word), ..Ear::default() });
        let world = world(Kind::Push, &ear);
        let mutex = world.mutex("a");
        let work = async {
            let guard = mutex.lock().await.unwrap();
            assert_eq!(mutex.lock_timeout(ms(50)).await.unwrap_err().kind(), ErrorKind::Timeout);
            world.store.once(Op::KeepAlive, [Fault::LoseReply]);
            time::sleep(ms(1_500)).await;
            assert!(guard.is_held());
            world.store.once(Op::Release, [Fault::LoseReply]);
            drop(guard);
            time::sleep(ms(100)).await;
            let guard = mutex.lock().await.unwrap();
            world.store.evict_all();
            guard.lost().await;
            drop(guard);
            world.store.set_latency(ms(100));
            time::timeout(ms(60), mutex.lock()).await.unwrap_err();
            world.store.set_latency(ms(2));
        };
        work.await;
        drop(mutex);
        assert!(lock(&ear.heard).iter().any(|heard| heard.starts_with(word)), "{word}");
        world.clean(word).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_silences_no_other() {
    let afraid = Arc::new(Ear { afraid_of: Some(""), ..Ear::default() });
    let first = Arc::new(Ear::default());
    let last = Arc::new(Ear::default());
    let ears = [&first, &afraid, &last];
    let world = World::built(Kind::Ttl, |mut builder| {
        for ear in ears {
            let ear: Arc<Ear> = Arc::clone(ear);
            builder = builder.observer(ear);
        }
        builder
    });
    let guard = world.mutex("a").lock().await.unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    world.clean("").await;
    let heard = lock(&first.heard).clone();
    assert_eq!(heard.len(), 5, "{heard:?}");
    assert_eq!(*lock(&afraid.heard), heard);
    assert_eq!(*lock(&last.heard), heard, "it is behind the one that panics");
}

/// The thread was busy until after the end of the lease, so no other task could notice the loss.
#[test]
fn c3_a_guard_dropped_after_the_end_of_its_lease_was_lost() {
    let ear = Arc::new(Ear::default());
    let hears: Arc<Ear> = Arc::clone(&ear);
    let world = World::built(Kind::Ttl, |builder| builder.clock(Clock::Boot).observer(hears));
    // No request is late, however late this thread is.
    world.store.set_latency(ms(0));
    runtimes::single().block_on(async {
        let guard = world.mutex_with("a", options().with_ttl(ms(60))).lock().await.unwrap();
        let lost = guard.lost();
        std::thread::sleep(ms(80));
        drop(guard);
        assert!(lost.is_lost());
        assert!(lock(&ear.heard).contains(&"lost 1 Expired".to_owned()), "{:?}", ear.heard);
        world.clean("").await;
    });
}
