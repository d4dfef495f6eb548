//! C7: a release reports the truth, and a dropped guard is released too.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::{self, Thread},
};

use lockkit_core::{
    ErrorKind, LockOptions, Renewal,
    spi::{Attempt, LossReason, Released, Wait},
};
use tokio::{runtime::Builder, sync::oneshot, time::timeout};

use crate::{
    case::{Needs, cases},
    env::{Env, SHORT, becomes_free, give_back, lock_briefly, long, take},
    harness::{Faults, Link as _},
    wait::{a_minute, eventually, soon, within},
};

cases! {
    c7_a_release_reports_freed_or_not_held: Needs::EXCLUSIVE.lease(),
        "a release that reports success for a lost lock";
    c7_a_release_is_idempotent: Needs::EXCLUSIVE,
        "a second release that fails, or frees the lock of the next holder";
    c7_a_release_whose_reply_is_lost_is_freed: Needs::EXCLUSIVE,
        "a retried release that reports `NotHeld` for a lock that its first request freed";
    c7_a_dropped_guard_frees: Needs::EXCLUSIVE,
        "a guard without a Drop";
    c7_a_guard_dropped_outside_a_runtime_frees: Needs::EXCLUSIVE,
        "a Drop that spawns a task, and so panics outside a runtime";
    c7_a_release_outside_a_runtime_frees: Needs::EXCLUSIVE,
        "a release that panics without a runtime, or waits there for ever";
    c7_shutdown_waits_for_dropped_guards: Needs::EXCLUSIVE,
        "a shutdown that does not wait for background releases";
    c7_a_release_that_its_runtime_did_not_finish_is_done: Needs::EXCLUSIVE,
        "a release, or a connection, that is lost when its runtime ends";
    c7_shutdown_refuses_new_calls_and_ends_waits: Needs::EXCLUSIVE.lease(),
        "a shutdown that still grants locks, waits for a waiter, or sends a holder no loss signal";
}

async fn c7_a_release_reports_freed_or_not_held(env: Env) {
    let locker = env.locker().await;
    let guard = take(&env.lock(&locker, "x", long())).await;
    guard.release().await.unwrap();
    let guard = lock_briefly(&env, &locker, "x", Renewal::Manual).await;
    guard.lost().wait().await;
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    let guard = take(&env.lock(&locker, "y", env.unrenewed())).await;
    env.harness().expire_now(guard.name()).await.unwrap();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    // A driver that the store told of the loss does not ask any more, but a bare claim does.
    let backend = env.backend().await;
    let mut claim = env.claim(&*backend, "z", &long());
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    env.harness().expire_now(&env.name("z")).await.unwrap();
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

async fn c7_a_release_is_idempotent(env: Env) {
    let backend = env.backend().await;
    let mut first = env.claim(&*backend, "x", &long());
    let mut second = env.claim(&*backend, "x", &long());
    assert_eq!(first.release().await.unwrap(), Released::NotHeld, "never attempted");
    assert!(matches!(first.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    assert_eq!(second.release().await.unwrap(), Released::NotHeld, "never attempted");
    assert_eq!(first.release().await.unwrap(), Released::Freed);
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert!(matches!(second.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert_eq!(second.release().await.unwrap(), Released::Freed, "C2: freed by the other claim");
}

async fn c7_a_release_whose_reply_is_lost_is_freed(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let healthy = env.lock(&env.locker().await, "x", long());
    // If the store is slow, the time for a release may end before the second answer.
    for _ in 0..3 {
        let guard = take(&env.lock(&locker, "x", long())).await;
        link.set(Faults::LOST_REPLIES);
        let repair = async {
            eventually(soon(), async || {
                match healthy.inspect().await.unwrap().holders.is_empty() {
                    true => Ok(()),
                    false => Err("the release was not applied".to_owned()),
                }
            })
            .await;
            link.cut();
            link.heal();
        };
        let (outcome, ()) = tokio::join!(guard.release(), repair);
        let Err(error) = outcome else { return };
        assert!(error.is_outcome_unknown(), "C7: {error}");
    }
    panic!("C7: no release learned that it freed the lock");
}

async fn c7_a_dropped_guard_frees(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let waiting = env.lock(&b, "x", long());
    for _ in 0..5 {
        drop(take(&env.lock(&a, "x", long())).await);
        let next = within(soon(), "the next grant", waiting.lock()).await.unwrap();
        give_back(next).await;
    }
}

async fn c7_a_guard_dropped_outside_a_runtime_frees(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let guard = take(&env.lock(&a, "x", long())).await;
    thread::spawn(move || drop(guard)).join().expect("C7: dropping a guard panicked");
    let next = within(soon(), "the next grant", env.lock(&b, "x", long()).lock()).await.unwrap();
    give_back(next).await;
}

async fn c7_a_release_outside_a_runtime_frees(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let guard = take(&env.lock(&a, "x", long())).await;
    let (outcome, end) = oneshot::channel();
    thread::spawn(move || drop(outcome.send(block_on(guard.release()))));
    let released =
        within(soon(), "the end of the release", end).await.expect("C7: a release panicked");
    released.unwrap();
    give_back(take(&env.lock(&b, "x", long())).await).await;
}

/// Polls on this thread, without a runtime.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

async fn c7_shutdown_waits_for_dropped_guards(env: Env) {
    let (a, line) = env.spied_locker().await;
    let b = env.locker().await;
    let mut held = Vec::new();
    for name in ["x", "y", "z"] {
        held.push(take(&env.lock(&a, name, long())).await);
    }
    line.set(Faults { hold_requests: true, ..Faults::NONE });
    drop(held);
    let mut shutdown = pin!(a.shutdown());
    let early = timeout(env.moment(), &mut shutdown).await;
    assert!(early.is_err(), "C7: {early:?} of a shutdown before the releases");
    line.heal();
    within(soon(), "the shutdown", shutdown).await.unwrap();
    for name in ["x", "y", "z"] {
        give_back(take(&env.lock(&b, name, long())).await).await;
    }
}

async fn c7_a_release_that_its_runtime_did_not_finish_is_done(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let names: Vec<_> = (0..8).map(|n| format!("x{n}")).collect();
    let locks: Vec<_> = names.iter().map(|name| env.lock(&a, name, long())).collect();
    let (done, end) = oneshot::channel();
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let guards = runtime.block_on(async {
            let mut guards = Vec::new();
            for lock in &locks {
                guards.push(take(lock).await);
            }
            guards
        });
        // The releases of these guards are queued, but their runtime ends before it can send them.
        drop(guards);
        drop(runtime);
        let _ = done.send(());
    });
    within(a_minute(), "the end of the runtime", end).await.expect("C7: a panic");
    // The next call of this locker runs on another runtime.
    let next = env.lock(&a, "y", long()).try_lock().await.expect("C7: no connection of the past");
    give_back(next.expect("nobody has it")).await;
    for name in &names {
        becomes_free(&env.lock(&b, name, long())).await;
    }
}

async fn c7_shutdown_refuses_new_calls_and_ends_waits(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let watch = env.lock(&b, "x", long());
    let elsewhere = take(&watch).await;
    let ttl = env.ttl(SHORT);
    let held = take(&env.lock(&a, "y", LockOptions::new().with_ttl(ttl))).await;
    let waiting = env.lock(&a, "x", long());
    let waiting = tokio::spawn(async move { waiting.lock().await });
    env.queued(1, async || watch.inspect().await).await;
    let lost = held.lost();
    let (ended, reason, ()) = tokio::join!(
        within(soon(), "the end of the wait", waiting),
        within(ttl + soon(), "the signal to the holder", lost.wait()),
        async { within(ttl + soon(), "the shutdown", a.shutdown()).await.unwrap() }
    );
    assert_eq!(ended.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert!(matches!(reason, LossReason::Closed | LossReason::Expired), "{reason:?}");
    assert!(!held.is_held());
    drop(held);
    let refused = env.lock(&a, "z", long()).try_lock().await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Closed);
    give_back(elsewhere).await;
}
