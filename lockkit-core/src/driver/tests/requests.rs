//! Tests of requests to release a lock: the holder hears them, at little cost.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{self, Instant};

use super::{
    TTL, World, ms, options,
    runtimes::{single, threads},
    secs,
};
use crate::{
    Clock, FencingToken, Grants, LockName, Locker, LockerBuilder, ReleaseRequest,
    error::ErrorKind,
    fake::{Fake, Fault, Kind, Op, lock},
    observe::{Event, Observer},
    spi::{Capabilities, Descriptor},
};

fn labelled(fake: Fake) -> Fake {
    fake.described(|it| Descriptor {
        capabilities: Capabilities { labels: true, ..it.capabilities },
        ..it
    })
}

fn world() -> World {
    World::tuned(Kind::Ttl, labelled)
}

/// Another locker over the same store.
fn another(world: &World, choose: impl FnOnce(LockerBuilder) -> LockerBuilder) -> Locker {
    let fake = labelled(Fake::new(Arc::clone(&world.store), Kind::Ttl));
    choose(Locker::builder(Arc::new(fake))).build()
}

async fn request(world: &World, name: &LockName) -> ReleaseRequest {
    world.locker.request_release(name, Grants::All, "disk full").await.unwrap()
}

fn looks(world: &World) -> usize {
    world.store.count(Op::Inspect)
}

#[tokio::test(start_paused = true)]
async fn c7_a_holder_hears_a_request_within_a_second() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    let name = guard.name().clone();
    let holder = tokio::spawn(async move {
        let reason = guard.release_requested().await.unwrap();
        guard.release().await.unwrap();
        reason
    });
    time::sleep(secs(5)).await;
    let begun = Instant::now();
    let request = request(&world, &name).await;
    assert!(request.is_open());
    assert_eq!(request.name(), &name);
    assert_eq!(holder.await.unwrap(), "disk full");
    assert!(begun.elapsed() <= ms(1_100), "{:?}", begun.elapsed());
    let next = world.mutex("a").lock().await.unwrap();
    request.withdraw().await.unwrap();
    // The request is over, and no later holder hears it.
    time::timeout(secs(5), next.release_requested()).await.unwrap_err();
    drop(next);
    world.clean("").await;
}

/// Fails if each call looks by itself, or if looks continue after the last call.
#[tokio::test(start_paused = true)]
async fn all_calls_together_look_once_a_second_and_without_calls_there_are_no_looks() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    time::sleep(secs(10)).await;
    assert_eq!(looks(&world), 0, "no call listens");
    let calls = [(); 3].map(|()| {
        let hold = guard.hold();
        tokio::spawn(async move { hold.release_requested().await })
    });
    time::sleep(secs(10)).await;
    assert!((9..=11).contains(&looks(&world)), "{}", looks(&world));
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    world.store.forget_log();
    for _ in 0..40 {
        time::timeout(ms(250), guard.release_requested()).await.unwrap_err();
    }
    assert!((9..=11).contains(&looks(&world)), "{} by calls made anew", looks(&world));
    world.store.forget_log();
    time::sleep(secs(5)).await;
    assert_eq!(looks(&world), 0, "no call listens any more");
    drop(guard);
    world.clean("").await;
}

/// Each turn is shorter than a look. Fails if the answer to a dropped call is lost.
#[tokio::test(start_paused = true)]
async fn a_call_made_anew_in_each_turn_misses_no_request() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    let request = request(&world, guard.name()).await;
    let begun = Instant::now();
    let reason = loop {
        if let Ok(reason) = time::timeout(ms(1), guard.release_requested()).await {
            break reason.unwrap();
        }
        assert!(begun.elapsed() < secs(5), "it is not heard");
    };
    assert_eq!(reason, "disk full");
    drop((request, guard));
    world.clean("").await;
}

/// Fails if a holder that ignores a request hears it in a busy loop, or only once.
#[tokio::test(start_paused = true)]
async fn a_request_is_heard_again_once_a_second() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    let request = request(&world, guard.name()).await;
    let begun = Instant::now();
    for _ in 0..4 {
        guard.release_requested().await.unwrap();
    }
    let took = begun.elapsed();
    assert!((ms(2_900)..ms(4_500)).contains(&took), "{took:?}");
    drop((request, guard));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c8_a_change_that_the_store_reports_is_heard_at_once() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    let hold = guard.hold();
    let call = tokio::spawn(async move { hold.release_requested().await });
    time::sleep(ms(1_300)).await;
    let begun = Instant::now();
    let request = request(&world, guard.name()).await;
    world.store.signal.notify_waiters();
    call.await.unwrap().unwrap();
    assert!(begun.elapsed() < ms(50), "{:?}", begun.elapsed());
    // Changes without end cause no looks without end.
    request.withdraw().await.unwrap();
    world.store.forget_log();
    let hold = guard.hold();
    let call = tokio::spawn(async move { hold.release_requested().await });
    for _ in 0..1_000 {
        time::sleep(ms(10)).await;
        world.store.signal.notify_waiters();
    }
    assert!(looks(&world) <= 22, "{} looks in 10 s", looks(&world));
    call.abort();
    drop(guard);
    world.clean("").await;
}

/// Fails if the call completes after a release, or if looks continue then.
#[tokio::test(start_paused = true)]
async fn c7_a_call_never_completes_after_a_release_and_looks_no_more() {
    let world = world();
    let mutex = world.mutex("a");
    let guard = mutex.lock().await.unwrap();
    let hold = guard.hold();
    let late = guard.hold();
    let call = tokio::spawn(async move { hold.release_requested().await });
    time::sleep(secs(3)).await;
    guard.release().await.unwrap();
    world.store.forget_log();
    let request = request(&world, mutex.name()).await;
    time::timeout(secs(5), late.release_requested()).await.expect_err("it was given back");
    assert!(!call.is_finished());
    assert_eq!(looks(&world), 0);
    call.abort();
    let _ = call.await;
    drop((request, late, mutex));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c3_a_loss_ends_the_call() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    let hold = guard.hold();
    let call = tokio::spawn(async move { hold.release_requested().await });
    time::sleep(ms(10)).await;
    world.store.evict_all();
    let error = time::timeout(TTL, call).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(error.operation(), Some("listen for requests"));
    assert_eq!(guard.release_requested().await.unwrap_err().kind(), ErrorKind::Lost);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c5_a_look_without_an_answer_is_repeated() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    let request = request(&world, guard.name()).await;
    world.store.once(Op::Inspect, [Fault::Hang, Fault::Panic, Fault::DOWN]);
    time::timeout(secs(10), guard.release_requested()).await.expect("a request").unwrap();
    assert_eq!(looks(&world), 4);
    drop((request, guard));
    world.clean("").await;
}

/// Two lockers add different numbers to the tokens of one store.
#[tokio::test(start_paused = true)]
async fn c2_a_request_reaches_only_the_grants_that_it_names() {
    let world = world();
    let guard = world.mutex("a").lock().await.unwrap();
    let raised = another(&world, |builder| builder.clock(Clock::Tokio).token_base(1_000));
    let token = raised.inspect(guard.name()).await.unwrap().holders[0].token.unwrap();
    assert_eq!(token.get(), guard.fencing_token().get() + 1_000);
    for grants in [Grants::Only(token), Grants::UpTo(token), Grants::All] {
        let request = raised.request_release(guard.name(), grants, "x").await.unwrap();
        time::timeout(secs(5), guard.release_requested()).await.expect("a request").unwrap();
        request.withdraw().await.unwrap();
    }
    let before = FencingToken::new(token.get() - 1);
    for grants in [Grants::Only(before), Grants::UpTo(before)] {
        let request = raised.request_release(guard.name(), grants, "x").await.unwrap();
        time::timeout(secs(5), guard.release_requested()).await.expect_err("another grant");
        request.withdraw().await.unwrap();
    }
    drop((raised, guard));
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn two_requests_for_one_lock_take_turns() {
    let world = world();
    let mutex = world.mutex("a");
    let first = request(&world, mutex.name()).await;
    let hurried = world.locker.clone().with_defaults(options().with_wait(ms(100))).unwrap();
    let error = hurried.request_release(mutex.name(), Grants::All, "me too").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert_eq!(
        (error.operation(), error.name()),
        (Some("request release"), Some(mutex.name())),
        "{error}"
    );
    let other = world.mutex("b");
    drop(request(&world, other.name()).await);
    drop(first);
    drop(request(&world, mutex.name()).await);
    drop((hurried, mutex, other));
    world.clean("").await;
}

/// Without labels a holder can't see which grants a request is about.
#[tokio::test(start_paused = true)]
async fn c13_a_store_without_labels_refuses_requests() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.forget_log();
    let heard = guard.release_requested().await.unwrap_err();
    let asked = world.locker.request_release(guard.name(), Grants::All, "x").await.unwrap_err();
    for error in [heard, asked] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("shows no labels"), "{error}");
    }
    assert_eq!(world.store.ops(), []);
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c13_a_reason_that_no_store_carries_is_refused() {
    let world = world();
    let mutex = world.mutex("a");
    for reason in ["", "two\nlines", &*"x".repeat(201)] {
        let asking = world.locker.request_release(mutex.name(), Grants::All, reason);
        assert_eq!(asking.await.unwrap_err().kind(), ErrorKind::InvalidOption, "{reason:?}");
    }
    assert_eq!(world.store.ops(), []);
    drop(mutex);
    world.clean("").await;
}

/// Keeps the names that events are about.
#[derive(Debug, Default)]
struct Names(Mutex<BTreeSet<LockName>>);

impl Observer for Names {
    fn on_event(&self, event: &Event<'_>) {
        lock(&self.0).insert(event.name.clone());
    }
}

/// The mutex of a request is no lock of the user, so metrics must not count it.
#[tokio::test(start_paused = true)]
async fn an_observer_hears_nothing_of_a_request() {
    let names = Arc::new(Names::default());
    let observer = Arc::clone(&names);
    let world = World::made(Kind::Ttl, labelled, |builder| builder.observer(observer));
    let guard = world.mutex("a").lock().await.unwrap();
    let request = request(&world, guard.name()).await;
    time::sleep(secs(3)).await;
    request.withdraw().await.unwrap();
    assert_eq!(*lock(&names.0), BTreeSet::from([guard.name().clone()]));
    drop(guard);
    world.clean("").await;
}

/// Fails if an operator sees requests among the locks in use.
#[tokio::test(start_paused = true)]
async fn c14_a_request_is_not_in_the_list_of_names() {
    let world = World::new(Kind::Memory);
    let guard = world.mutex("a").lock().await.unwrap();
    let request = request(&world, guard.name()).await;
    let names = world.locker.names("").await.unwrap();
    assert_eq!(names, [guard.name().clone()]);
    drop((request, guard));
    world.clean("").await;
}

/// The background task runs on a runtime that ends. Fails if a call then waits for ever.
#[test]
fn a_call_outlives_the_runtime_of_the_background_task() {
    const LONG: Duration = secs(60);
    let world = World::made(Kind::Ttl, labelled, |builder| builder.clock(Clock::Boot));
    let mutex = world.mutex_with("a", options().with_ttl(LONG));
    let first = threads();
    let guard = first.block_on(mutex.lock()).unwrap();
    let asker = another(&world, |builder| builder.clock(Clock::Boot));
    let runtime = single();
    let hold = guard.hold();
    runtime.block_on(async {
        let call = tokio::spawn(async move { hold.release_requested().await });
        time::sleep(ms(100)).await;
        first.shutdown_background();
        let request = asker.request_release(guard.name(), Grants::All, "x").await.unwrap();
        time::timeout(LONG, call).await.expect("a request").unwrap().unwrap();
        request.withdraw().await.unwrap();
        drop((asker, mutex, guard));
        world.clean("").await;
    });
}
