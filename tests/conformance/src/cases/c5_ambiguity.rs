//! C5: a lost reply means unknown, never failed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::{
    ErrorKind, FencingToken, LockGuard, OwnerId, Result,
    spi::Released,
    spi::{Attempt, Lease, LeaseScope, Wait},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    case::{Needs, cases},
    env::{Env, SHORT, becomes_free, give_back, long, take},
    harness::{Faults, Hook},
    judge::judged,
    lock::AnyLock,
    wait::{Asked, STEP, STORM, eventually, soon, step, within},
    witness::{Stay, Witness},
};

cases! {
    c5_reply_lost_same_token: Needs::EXCLUSIVE,
        "a retry that does not recognise its own grant, so it waits for itself or takes a second \
         token";
    c5_a_retry_reports_a_lease_that_the_store_has: Needs::EXCLUSIVE.lease(),
        "a retry that reports the whole ttl, or none, for a lease that is half over";
    c5_a_wait_that_ends_cleans_up: Needs::EXCLUSIVE,
        "a wait that ends, but leaves a grant, which blocks the name for a whole lease";
    c5_a_dropped_call_cleans_up: Needs::EXCLUSIVE,
        "a cancelled call that does not undo its applied request";
    c5_a_failed_try_cleans_up: Needs::EXCLUSIVE,
        "an error with a known outcome although the store may have applied the request";
    c5_a_storm_of_faults_breaks_nothing: Needs::EXCLUSIVE,
        "any of these faults, in random combinations";
    c5_a_late_request_does_nothing: Needs::EXCLUSIVE.hook(Hook::Wire),
        "a request without a not-after time, which the store applies after the release, so it \
         blocks the name for a whole lease";
    c5_a_request_behind_the_release_is_undone: Needs::EXCLUSIVE.hook(Hook::Wire),
        "a release that ignores an attempt on a broken connection, although the attempt may still \
         arrive";
}

async fn c5_reply_lost_same_token(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let healthy = env.lock(&env.locker().await, "x", long());
    known_name(&env, &healthy).await;
    link.set(Faults::LOST_REPLIES);
    let asking = start(env.lock(&locker, "x", long()));
    let seen = applied(&env, &healthy).await;
    link.cut();
    link.heal();
    let guard = within(soon(), "the retried grant", asking).await.unwrap().unwrap();
    if let Some((owner, token)) = seen {
        // A quorum may show a smaller token until its members have decided. After that, its token
        // stays (`c5_a_repeated_attempt_is_the_same_grant`).
        let may_rise = !env.harness().parts().is_empty();
        let is_the_same = guard.fencing_token() == token
            || (may_rise && guard.fencing_token() > token && guard.owner() == owner);
        assert!(
            is_the_same,
            "C5: the retry got {guard:?}, and the first attempt token {token} for {owner}"
        );
    }
    assert!(guard.is_held());
    assert_eq!(healthy.inspect().await.unwrap().holders.len(), 1);
    guard.release().await.unwrap();
}

async fn c5_a_retry_reports_a_lease_that_the_store_has(env: Env) {
    judged(&env, SHORT, async |turn| {
        let a = env.backend().await;
        let b = env.backend().await;
        let ttl = turn.ttl;
        let options = turn.renewed();
        let mut mine = env.claim(&*a, &turn.name, &options);
        let first = grant(turn.answer(mine.attempt(Wait::No)).await?);
        sleep(ttl / 2).await;
        let asked = Asked::now();
        let again = grant(turn.answer(mine.attempt(Wait::No)).await?);
        if again.0 != first.0 {
            assert_eq!(mine.release().await.unwrap(), Released::Freed);
            return Err("C5: a retry got another token".to_owned());
        }
        let promised = asked.deadline(again.1).unwrap_or(asked.at + ttl * 3);
        let mut other = env.claim(&*b, &turn.name, &options);
        while Instant::now() < promised {
            let answer = other.attempt(Wait::No).await.unwrap();
            let early = promised.saturating_duration_since(Instant::now());
            let granted = matches!(answer, Attempt::Granted(_));
            assert!(
                !granted || early.is_zero(),
                "C5: granted to another one {early:?} before the lease's end"
            );
            if granted {
                break;
            }
            step().await;
        }
        // One of the two claims holds it now. The lease of the first may end during its release,
        // and then the outcome is unknown.
        let _ = mine.release().await;
        let _ = other.release().await.unwrap();
        Ok(())
    })
    .await;
}

async fn c5_a_wait_that_ends_cleans_up(env: Env) {
    unknown_attempt_leaves_nothing(env, async |lock, bound| {
        let given_up = lock.lock_timeout(bound).await;
        assert!(!matches!(given_up, Ok(Some(_))), "a grant without a reply");
    })
    .await;
}

async fn c5_a_dropped_call_cleans_up(env: Env) {
    unknown_attempt_leaves_nothing(env, async |lock, bound| {
        timeout(bound, lock.lock()).await.expect_err("a grant without a reply");
    })
    .await;
}

async fn c5_a_failed_try_cleans_up(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let healthy = env.lock(&env.locker().await, "x", long());
    let lock = env.lock(&locker, "x", long().with_op_timeout(env.bound() * 2));
    link.set(Faults::LOST_REPLIES);
    let error = lock.try_lock().await.expect_err("a grant without a reply");
    // A store that first checks whether the lock is free did not apply anything, and may say so.
    let applied = !healthy.inspect().await.unwrap().holders.is_empty();
    assert!(!applied || error.is_outcome_unknown(), "C5: {error:?} claims that nothing happened");
    link.cut();
    link.heal();
    becomes_free(&healthy).await;
}

/// The bound is doubled while the store is too slow to apply the attempt within it.
async fn unknown_attempt_leaves_nothing(env: Env, give_up: impl AsyncFn(&AnyLock, Duration)) {
    let (locker, link) = env.faulty_locker().await;
    let healthy = env.lock(&env.locker().await, "x", long());
    let lock = env.lock(&locker, "x", long().with_op_timeout(env.bound() * 2));
    let known = env.lock(&locker, "x", long());
    let mut bound = env.patience();
    loop {
        // Without a connection, or on an unused name, the attempt would not be applied.
        becomes_free(&known).await;
        link.set(Faults::LOST_REPLIES);
        // The background task removes the attempt soon after the call gives up.
        let ((), seen) =
            tokio::join!(give_up(&lock, bound), timeout(bound, applied(&env, &healthy)));
        link.cut();
        link.heal();
        becomes_free(&healthy).await;
        if seen.is_ok() {
            return;
        }
        assert!(bound < soon(), "the attempt was not applied within {bound:?}");
        bound *= 2;
    }
}

async fn c5_a_storm_of_faults_breaks_nothing(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let healthy = env.locker().await;
    let witness = Arc::new(Witness::default());
    let start = Instant::now();
    // Where a broken connection leaves a lease behind, the next claim waits for its end.
    let lives_on = env.descriptor().lease_scope == LeaseScope::Connection;
    let ttl = if lives_on { env.ttl(SHORT * 3) } else { long().ttl() };
    let patience = env.patience();
    let options = long().with_ttl(ttl).with_op_timeout(patience / 2);
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let locker = if task % 3 == 0 { &healthy } else { &locker };
        let lock = env.lock(locker, "x", options.clone());
        let witness = Arc::clone(&witness);
        // The storm breaks connections, and may last longer than a session survives without one. A
        // lock that is lost with its session or connection is then no failure.
        let session = env.descriptor().lease_scope != LeaseScope::Claim;
        tasks.spawn(async move {
            while start.elapsed() < STORM {
                // An error means that the outcome is unknown, and that the attempt was taken back.
                let Ok(Some(guard)) = lock.lock_timeout(patience).await else { continue };
                let mut stay = Stay::begin(&guard);
                // Some stores give a waiter the lock for a moment only, until it is renewed.
                let start = Instant::now();
                let left = guard.remaining();
                step().await;
                let may_end = || session || start.elapsed() >= left;
                assert!(stay.look(&guard) || may_end(), "C10: the lease was lost");
                witness.record(stay);
                match guard.release().await {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Lost => {
                        assert!(may_end(), "C2: {error}")
                    }
                    Err(error) => assert!(error.is_outcome_unknown(), "C7: {error:?}"),
                }
            }
        });
    }
    let longest = env.moment() / 4;
    while start.elapsed() < STORM {
        sleep(rand::random_range(STEP..longest)).await;
        link.set(any_faults(longest));
        if rand::random() {
            link.cut();
        }
    }
    link.cut();
    link.heal();
    within(soon(), "the end of the storm", tasks.join_all()).await;
    if env.descriptor().exceptions.connection_bound {
        witness.verify_tokens();
    } else {
        witness.verify();
    }
    becomes_free(&env.lock(&healthy, "x", long())).await;
}

fn any_faults(longest: Duration) -> Faults {
    match rand::random_range(0..6) {
        0 => Faults { request_delay: rand::random_range(Duration::ZERO..longest), ..Faults::NONE },
        1 => Faults { reply_delay: rand::random_range(Duration::ZERO..longest), ..Faults::NONE },
        2 => Faults { refuse: true, ..Faults::NONE },
        3 => Faults::LOST_REPLIES,
        4 => Faults::SILENCE,
        _ => Faults::NONE,
    }
}

async fn c5_a_late_request_does_nothing(env: Env) {
    let op_timeout = env.bound();
    arrives_behind_the_release(env, op_timeout, op_timeout * 3).await;
}

async fn c5_a_request_behind_the_release_is_undone(env: Env) {
    let late = env.patience();
    arrives_behind_the_release(env, late * 5, late).await;
}

/// Breaks the client's end of a connection; the requests that the client sent arrive `late`.
async fn arrives_behind_the_release(env: Env, op_timeout: Duration, late: Duration) {
    let (locker, link) = env.faulty_locker().await;
    let options = long().with_op_timeout(op_timeout);
    // One attempt is dropped; the other is retried and released.
    let dropped = env.lock(&locker, "dropped", options.clone());
    let retried = env.lock(&locker, "retried", options);
    link.set(Faults { hold_requests: true, ..Faults::NONE });
    let asking = start(retried);
    timeout(env.moment(), dropped.lock()).await.expect_err("a grant without a request");
    link.cut_client(late);
    link.heal();
    let guard = within(soon(), "the retried grant", asking).await.unwrap().unwrap();
    let token = guard.fencing_token();
    let healthy = env.locker().await;
    if let Err(error) = guard.release().await {
        // The store paused for longer than op_timeout.
        assert!(error.is_outcome_unknown(), "C2: {token} is not held any more: {error}");
        let left = env.lock(&healthy, "retried", long());
        let free = async || left.force_release(token).await.map(drop);
        eventually(soon(), async || free().await.map_err(|error| error.to_string())).await;
    }
    // Both requests of the broken connection arrive after the releases.
    sleep(late + env.patience()).await;
    for name in ["dropped", "retried"] {
        becomes_free(&env.lock(&healthy, name, long())).await;
    }
}

fn start(lock: AnyLock) -> tokio::task::JoinHandle<Result<LockGuard>> {
    tokio::spawn(async move { lock.lock().await })
}

/// Uses the name once. Where an attempt takes more than one request, the first request gets far
/// enough only on a name that was in use before.
async fn known_name(env: &Env, lock: &AnyLock) {
    if env.descriptor().lease_scope == LeaseScope::Connection {
        give_back(take(lock).await).await;
    }
}

/// Waits until an attempt without an answer has been applied. Returns its owner and token, or
/// `None` where a later request gives the token. There, nothing remains of an attempt that gets no
/// answer.
async fn applied(env: &Env, lock: &AnyLock) -> Option<(OwnerId, FencingToken)> {
    let by_one_request = env.descriptor().lease_scope != LeaseScope::Connection;
    let mut grant = None;
    eventually(soon(), async || {
        // The parts of a store may not agree yet.
        let holders = lock.inspect().await.map_err(|error| error.to_string())?.holders;
        grant = holders.first().and_then(|holder| holder.owner.zip(holder.token));
        let seen = if by_one_request { grant.is_some() } else { !holders.is_empty() };
        if seen { Ok(()) } else { Err("the attempt was not applied".to_owned()) }
    })
    .await;
    grant.filter(|_| by_one_request)
}

fn grant(attempt: Attempt) -> (FencingToken, Lease) {
    match attempt {
        Attempt::Granted(grant) => (grant.token, grant.lease),
        Attempt::Busy { .. } => panic!("{attempt:?} of its own lock"),
    }
}
