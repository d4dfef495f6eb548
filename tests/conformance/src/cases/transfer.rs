//! Transfer inside one process: one request, no gap, a new owner and a new token.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use lockkit_core::{
    FencingToken, OwnerId,
    spi::{
        Attempt, Backend, Claim, ClaimSpec, QueuePolicy, Released, RenewalOutcome, Transferred,
        Wait,
    },
};
use tokio::time::timeout;

use crate::{
    case::{Ability, Needs, cases},
    env::{Env, OP_TIMEOUT, in_the_end, long},
    harness::Faults,
    wait::{eventually, slack, soon, within},
};

const TRANSFER: Needs = Needs::MUTEX.ability(Ability::Transfer);

cases! {
    c1_a_transfer_leaves_no_gap: TRANSFER,
        "a transfer that releases the lock and then acquires it";
    c2_the_previous_owner_can_do_nothing_after_a_transfer: TRANSFER,
        "a transfer that keeps the previous owner";
    c4_a_transfer_raises_the_token: TRANSFER,
        "a transfer that keeps the token";
    c7_a_transfer_of_a_lost_lock_grants_nothing: TRANSFER,
        "a transfer without a check of the owner";
    c12_waiters_in_the_store_go_first_by_policy: TRANSFER.fair(),
        "a process that transfers the lock for ever while others wait";
    c5_a_transfer_without_an_answer_is_undone: TRANSFER,
        "a transfer without an answer that leaves the lock with an unknown owner";
}

fn spec(env: &Env, label: &str) -> ClaimSpec {
    let mut spec = ClaimSpec::new(
        env.name("x"),
        OwnerId::random(),
        env.flavor().mode(),
        long().ttl(),
        OP_TIMEOUT,
    );
    spec.label = Some(label.into());
    spec
}

async fn granted(claim: &mut dyn Claim) -> FencingToken {
    match claim.attempt(Wait::No).await.unwrap() {
        Attempt::Granted(grant) => grant.token,
        busy => panic!("the lock is taken: {busy:?}"),
    }
}

/// A grant that was transferred to a second claim.
async fn transferred(
    env: &Env,
    backend: &Arc<dyn Backend>,
) -> (Box<dyn Claim>, ClaimSpec, FencingToken, FencingToken) {
    let mut claim = backend.claim(spec(env, "former")).unwrap();
    let old = granted(&mut *claim).await;
    let to = spec(env, "new");
    match claim.transfer(&to, QueuePolicy::TransferFirst).await.unwrap() {
        Transferred::Granted(grant) => (claim, to, old, grant.token),
        other => panic!("not transferred: {other:?}"),
    }
}

async fn c1_a_transfer_leaves_no_gap(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let first = spec(&env, "first");
    let mut holder = a.claim(first.clone()).unwrap();
    granted(&mut *holder).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let outsider = tokio::spawn(async move {
        loop {
            let mut claim = env.claim(&*b, "x", &long());
            if let Attempt::Granted(_) = claim.attempt(Wait::No).await.unwrap() {
                assert_eq!(claim.release().await.unwrap(), Released::Freed);
                return;
            }
            counted.fetch_add(1, Relaxed);
        }
    });
    let mut n = 0;
    // Until the outsider has asked often enough in between.
    while n < 100 || tries.load(Relaxed) < 20 {
        n += 1;
        tokio::task::yield_now().await;
        let mut to = first.clone();
        to.owner = OwnerId::random();
        let answer = holder.transfer(&to, QueuePolicy::TransferFirst).await.unwrap();
        assert!(matches!(answer, Transferred::Granted(_)), "transfer {n}: {answer:?}");
        assert!(!outsider.is_finished(), "C1: another one got it during transfer {n}");
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    outsider.await.unwrap();
}

async fn c2_the_previous_owner_can_do_nothing_after_a_transfer(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let (mut claim, to, old, token) = transferred(&env, &a).await;
    let seen = b.inspect(&to.name).await.unwrap();
    assert_eq!(seen.holders.len(), 1, "{seen:?}");
    assert_eq!((seen.holders[0].owner, seen.holders[0].token), (Some(to.owner), Some(token)));
    if env.descriptor().capabilities.labels {
        assert_eq!(seen.holders[0].label.as_deref(), Some("new"));
    }
    assert_eq!(b.force_release(&to.name, old).await.unwrap(), Released::NotHeld);
    assert!(
        matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)),
        "C10: the new owner can't renew"
    );
    match claim.attempt(Wait::No).await.unwrap() {
        Attempt::Granted(again) => {
            assert_eq!(again.token, token, "C5: asked again, it has another token")
        }
        busy => panic!("C5: {busy:?}"),
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert!(b.inspect(&to.name).await.unwrap().holders.is_empty());
}

async fn c4_a_transfer_raises_the_token(env: Env) {
    let backend = env.backend().await;
    let (mut claim, _, old, mut last) = transferred(&env, &backend).await;
    assert!(last > old, "C4: {last} after {old}");
    for _ in 0..20 {
        match claim.transfer(&spec(&env, "next"), QueuePolicy::TransferFirst).await.unwrap() {
            Transferred::Granted(grant) => {
                assert!(grant.token > last, "C4: {} after {last}", grant.token);
                last = grant.token;
            }
            other => panic!("not transferred: {other:?}"),
        }
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    let mut next = env.claim(&*backend, "x", &long());
    assert!(granted(&mut *next).await > last, "C4: the token fell after transfers");
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

async fn c7_a_transfer_of_a_lost_lock_grants_nothing(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let mut past = env.claim(&*a, "x", &long());
    let mut present = env.claim(&*b, "x", &long());
    granted(&mut *past).await;
    env.harness().expire_now(&env.name("x")).await.unwrap();
    let token = granted(&mut *present).await;
    assert_eq!(
        past.transfer(&spec(&env, "new"), QueuePolicy::TransferFirst).await.unwrap(),
        Transferred::NotHeld
    );
    assert_eq!(b.inspect(&env.name("x")).await.unwrap().holders[0].token, Some(token));
    assert_eq!(past.release().await.unwrap(), Released::NotHeld);
    assert_eq!(present.release().await.unwrap(), Released::Freed);
}

async fn c12_waiters_in_the_store_go_first_by_policy(env: Env) {
    let a = env.backend().await;
    let b = env.backend().await;
    let mut holder = a.claim(spec(&env, "inside")).unwrap();
    granted(&mut *holder).await;
    // No claim waits, so no claim can go first.
    let answer = holder.transfer(&spec(&env, "inside"), QueuePolicy::QueueFirst).await.unwrap();
    assert!(matches!(answer, Transferred::Granted(_)), "{answer:?}");
    let locker = lockkit_core::Locker::builder(b).build();
    let lock = env.lock(&locker, "x", long());
    let waiting = tokio::spawn(async move { lock.lock().await.unwrap() });
    eventually(soon(), async || match a.inspect(&env.name("x")).await.unwrap().waiters {
        Some(1) | None => Ok(()),
        waiters => Err(format!("{waiters:?} wait")),
    })
    .await;
    let answer = holder.transfer(&spec(&env, "inside"), QueuePolicy::TransferFirst).await.unwrap();
    assert!(matches!(answer, Transferred::Granted(_)), "C12: {answer:?}");
    let answer = holder.transfer(&spec(&env, "inside"), QueuePolicy::QueueFirst).await.unwrap();
    assert_eq!(answer, Transferred::Yielded, "C12: the one who waits outside was passed over");
    let guard = within(env.poll() + slack(), "the outsider's grant", waiting).await.unwrap();
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld, "C2");
    guard.release().await.unwrap();
}

async fn c5_a_transfer_without_an_answer_is_undone(env: Env) {
    let connected = in_the_end(async || env.harness().connect_through_faults().await).await;
    let (backend, link) = connected.expect("the store can be reached");
    for _ in 0..3 {
        let mut claim = backend.claim(spec(&env, "former")).unwrap();
        granted(&mut *claim).await;
        link.set(Faults::LOST_REPLIES);
        let to = spec(&env, "new");
        // The core stops a transfer at op_timeout in the same way.
        let transfer =
            timeout(env.patience(), claim.transfer(&to, QueuePolicy::TransferFirst)).await;
        assert!(!matches!(transfer, Ok(Ok(_))), "an answer that was lost: {transfer:?}");
        link.heal();
        // The core also stops a release. The connection ends now, and a client library may never
        // answer a request that it takes at that moment.
        eventually(soon(), async || match timeout(OP_TIMEOUT, claim.release()).await {
            Ok(Ok(Released::Freed | Released::NotHeld)) => Ok(()),
            answer => Err(format!("{answer:?} after a transfer without an answer")),
        })
        .await;
        let seen = env.backend().await.inspect(&to.name).await.unwrap();
        assert!(seen.holders.is_empty(), "C5: {seen:?} stays");
    }
    backend.close().await.unwrap();
}
