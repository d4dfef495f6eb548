//! C14: an operator sees who holds a lock, and can end exactly that grant.

use std::time::{Duration, Instant};

use lockkit_core::{
    ErrorKind, FencingToken,
    spi::{LeaseScope, LossReason, Released},
};

use crate::{
    case::{Needs, cases},
    doomed::dead_grant,
    env::{BRIEF, Env, SHORT, free_by_force, give_back, long, take},
    harness::Hook,
    wait::{ROUNDING, at_once, eventually, slack, soon, within},
};

cases! {
    c14_inspection_shows_the_holder: Needs::EXCLUSIVE,
        "an inspection that invents holders, or mixes them up";
    c14_inspection_changes_nothing: Needs::EXCLUSIVE.lease(),
        "an inspection that renews or creates a lock";
    c14_an_ended_lease_is_not_shown: Needs::EXCLUSIVE.lease(),
        "an inspection that shows a holder after the end of its lease";
    c14_waiters_are_counted: Needs::EXCLUSIVE,
        "a store that claims to count waiters, and counts wrong";
    c14_force_release_frees_the_grant_with_that_token: Needs::EXCLUSIVE,
        "a forced release that does not reach the holder or the next waiter";
    c14_force_release_of_another_token_changes_nothing: Needs::EXCLUSIVE,
        "a late forced release that frees the next holder's lock";
    c14_a_foreign_lock_is_respected_and_never_freed: Needs::MUTEX.hook(Hook::Foreign),
        "a backend that overwrites, frees or ignores another program's lock";
}

async fn c14_inspection_shows_the_holder(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let watch = env.lock(&b, "x", long());
    assert!(watch.inspect().await.unwrap().holders.is_empty());
    let asked = Instant::now();
    let guard = take(&env.lock(&a, "x", long().with_label("worker 7"))).await;
    env.pause().await;
    for seen in [watch.inspect().await.unwrap(), b.inspect(guard.name()).await.unwrap()] {
        assert_eq!(seen.holders.len(), 1, "{seen:?}");
        let holder = &seen.holders[0];
        assert_eq!(holder.owner, Some(guard.owner()));
        assert_eq!(holder.token, Some(guard.fencing_token()));
        assert_eq!(holder.mode, guard.mode());
        if env.descriptor().capabilities.labels {
            assert_eq!(holder.label.as_deref(), Some("worker 7"));
        }
        if let Some(remaining) = holder.remaining {
            assert!(remaining <= long().ttl(), "{remaining:?} of {:?}", long().ttl());
            assert!(remaining > Duration::ZERO, "a holder without a lease");
        }
        if let Some(age) = holder.age {
            let least = env.moment();
            assert!(age + ROUNDING >= least, "granted {least:?} ago, and shown as {age:?}");
            let most = asked.elapsed() + ROUNDING;
            assert!(age <= most, "asked for {most:?} ago, and shown as granted {age:?} ago");
        }
    }
    give_back(guard).await;
    assert!(watch.inspect().await.unwrap().holders.is_empty());
}

async fn c14_inspection_changes_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let short = env.fleeting(SHORT);
    let guard = take(&env.lock(&a, "x", short.clone())).await;
    let watch = env.lock(&b, "x", long());
    eventually(short.ttl() + soon(), async || {
        // The holder itself would end the lease at once, by a release in the background.
        match watch.inspect().await.unwrap().holders.is_empty() {
            true => Ok(()),
            false => Err("C14: the lease never ends while somebody looks".to_owned()),
        }
    })
    .await;
    assert!(!guard.is_held(), "C3: the holder thinks that it has what is gone");
    env.lock(&b, "never locked", long()).inspect().await.unwrap();
    give_back(take(&watch).await).await;
}

async fn c14_an_ended_lease_is_not_shown(env: Env) {
    let backend = env.backend().await;
    let short = env.fleeting(BRIEF);
    let ttl = short.ttl();
    dead_grant(&env, "x", short, env.flavor().mode()).await;
    eventually(ttl + soon(), async || {
        match backend.inspect(&env.name("x")).await.unwrap().holders.as_slice() {
            [] => Ok(()),
            holders => Err(format!("C14: still shown: {holders:?}")),
        }
    })
    .await;
}

async fn c14_waiters_are_counted(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await.with_process_gate(false);
    let lock = env.lock(&a, "x", long());
    let held = take(&lock).await;
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let waiter = env.lock(&b, "x", long());
        waiters.spawn(async move { waiter.lock().await.map(drop) });
    }
    let counts = env.descriptor().capabilities.waiter_count;
    let expect = async |count| {
        eventually(soon(), async || match lock.inspect().await.unwrap().waiters {
            Some(waiters) if waiters == count => Ok(()),
            None if !counts => Ok(()),
            waiters => Err(format!("C14: {waiters:?} wait, not {count}")),
        })
        .await;
    };
    expect(3).await;
    waiters.shutdown().await;
    expect(0).await;
    give_back(held).await;
}

async fn c14_force_release_frees_the_grant_with_that_token(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let lock = env.lock(&b, "x", long());
    let guard = take(&env.lock(&a, "x", env.unrenewed())).await;
    let waiter = lock.clone();
    let waiting = tokio::spawn(async move { waiter.lock().await });
    env.queued(1, async || lock.inspect().await).await;
    free_by_force(async || lock.force_release(guard.fencing_token()).await).await;
    let next = within(env.poll() + slack(), "the waiter's grant", waiting).await.unwrap().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    guard.renew().await.expect_err("C14: renewed what an operator has freed");
    let reason = at_once("the loss", guard.lost().wait()).await;
    // The store ends the connection that carried the lock, and may answer too late to say why.
    let ended = env.descriptor().lease_scope == LeaseScope::Connection;
    let is_told = reason == LossReason::Evicted || ended && reason == LossReason::SessionLost;
    assert!(is_told, "C14: {reason:?}");
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.release().await.unwrap();
}

async fn c14_force_release_of_another_token_changes_nothing(env: Env) {
    let a = env.locker().await;
    let b = env.locker().await;
    let lock = env.lock(&a, "x", long());
    let operator = env.lock(&b, "x", long());
    let first = take(&lock).await;
    let old = first.fencing_token();
    give_back(first).await;
    assert_eq!(operator.force_release(old).await.unwrap(), Released::NotHeld);
    let second = take(&lock).await;
    for wrong in [old, FencingToken::new(0), FencingToken::new(second.fencing_token().get() + 1)] {
        assert_eq!(operator.force_release(wrong).await.unwrap(), Released::NotHeld);
        assert!(operator.try_lock().await.unwrap().is_none(), "C14: freed by token {wrong}");
    }
    second.release().await.unwrap();
}

async fn c14_a_foreign_lock_is_respected_and_never_freed(env: Env) {
    let locker = env.locker().await;
    let lock = env.lock(&locker, "x", long());
    let first = take(&lock).await;
    let old = first.fencing_token();
    give_back(first).await;

    env.harness().foreign_lock(lock.name(), long().ttl()).await.unwrap();
    assert!(
        lock.try_lock().await.unwrap().is_none(),
        "C14: a foreign client's lock was overwritten"
    );
    let seen = lock.inspect().await.unwrap();
    assert_eq!(seen.holders.len(), 1, "{seen:?}");
    assert_eq!((seen.holders[0].owner, seen.holders[0].token), (None, None), "no lockkit client");
    for token in [old, FencingToken::new(0)] {
        assert_eq!(lock.force_release(token).await.unwrap(), Released::NotHeld);
    }
    let waiter = lock.clone();
    let waiting = tokio::spawn(async move { waiter.lock().await });
    env.queued(1, async || lock.inspect().await).await;
    assert!(env.harness().foreign_unlock(lock.name()).await.unwrap(), "C14: it was freed");
    let next = within(env.poll() + slack(), "the grant after the foreign one", waiting)
        .await
        .unwrap()
        .unwrap();
    assert!(next.fencing_token() > old);
    give_back(next).await;
}
