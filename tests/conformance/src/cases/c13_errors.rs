//! C13: each failure has its own kind, names what it concerns, and comes in time.

use std::time::{Duration, Instant};

use lockkit_core::{Error, ErrorKind, LockOptions, MAX_TTL, MIN_TTL};

use super::c8_waiting::out_of_reach;
use crate::{
    case::{Needs, cases},
    env::{AMPLE, Env, becomes_free, give_back, long, take},
    harness::Faults,
    lock::Flavor,
    wait::{STEP, slack},
};

cases! {
    c13_bad_options_are_refused: Needs::EXCLUSIVE,
        "a backend that silently changes contradictory options";
    c13_an_unreachable_store_is_an_error_in_time: Needs::EXCLUSIVE,
        "a hang, a panic, or 'busy' when the store can't be reached";
    c13_a_silent_store_is_an_error_in_time: Needs::EXCLUSIVE,
        "a request without a timeout";
    c13_unsupported_operations_are_refused: Needs::MUTEX,
        "a capability that is off, but partly works";
    c13_an_outage_heals: Needs::EXCLUSIVE,
        "a client that never reconnects";
}

async fn c13_bad_options_are_refused(env: Env) {
    let locker = env.locker().await;
    let options = LockOptions::new();
    for bad in [
        options.clone().with_ttl(Duration::ZERO),
        options.clone().with_ttl(MIN_TTL - STEP),
        options.clone().with_ttl(MAX_TTL + STEP),
        options.clone().with_op_timeout(Duration::ZERO),
        options.clone().with_ttl(AMPLE).with_op_timeout(AMPLE / 2 + STEP),
        options.clone().with_label(""),
        options.clone().with_label("a\nb"),
        options.clone().with_label("x".repeat(256)),
    ] {
        let error = env.flavor().lock(&locker, "x", bad.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{bad:?}: {error}");
        assert_eq!(locker.clone().with_defaults(bad).unwrap_err().kind(), ErrorKind::InvalidOption);
    }
    let min_ttl = env.descriptor().min_ttl;
    if min_ttl > MIN_TTL {
        // Only the store knows this limit: it refuses the lease when asked, and keeps nothing of
        // the request.
        let too_short = env.lock(&locker, "x", options.clone().with_ttl(min_ttl - STEP));
        let error = too_short.try_lock().await.expect_err("C13: a lease that the store can't give");
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error:?}");
        give_back(take(&env.lock(&locker, "x", options.with_ttl(min_ttl))).await).await;
    }
}

async fn c13_an_unreachable_store_is_an_error_in_time(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let lock = env.lock(&locker, "x", long());
    give_back(take(&lock).await).await;
    let op_timeout = env.patience() * 3;
    let lock = env.lock(&locker, "x", long().with_op_timeout(op_timeout));
    link.set(Faults { refuse: true, ..Faults::NONE });
    link.cut();
    let start = Instant::now();
    let error = lock.try_lock().await.expect_err("C13: an answer of a store that is not there");
    says_it_all(&error, ErrorKind::Unavailable);
    assert!(start.elapsed() < op_timeout + slack(), "C13: an error after {:?}", start.elapsed());
    let error = out_of_reach(&env, &lock, env.moment()).await;
    says_it_all(&error, ErrorKind::Unavailable);
    link.heal();
}

async fn c13_a_silent_store_is_an_error_in_time(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let lock = env.lock(&locker, "x", long().with_op_timeout(env.patience()));
    link.set(Faults::SILENCE);
    let start = Instant::now();
    let error = lock.try_lock().await.expect_err("C13: an answer of a store that is silent");
    says_it_all(&error, ErrorKind::Unavailable);
    assert!(error.is_outcome_unknown(), "C5: nobody knows whether it was applied");
    assert!(
        start.elapsed() < env.patience() + slack(),
        "C13: an error after {:?}",
        start.elapsed()
    );
    link.cut();
    link.heal();
}

#[track_caller]
fn says_it_all(error: &Error, kind: ErrorKind) {
    assert_eq!(error.kind(), kind, "{error:?}");
    let text = error.to_string();
    assert!(error.operation().is_some(), "which operation? {error:?}");
    assert!(error.backend().is_some(), "which backend? {error:?}");
    assert!(error.name().is_some_and(|name| name.as_str() == "x"), "which lock? {error:?}");
    assert!(!text.contains('\n'), "an error is one line: {text}");
}

async fn c13_unsupported_operations_are_refused(env: Env) {
    let locker = env.locker().await;
    for flavor in [Flavor::Mutex, Flavor::Writer, Flavor::OnePermit] {
        let made = flavor.lock(&locker, "x", long());
        if flavor.is_in(locker.capabilities()) {
            made.unwrap();
        } else {
            assert_eq!(made.unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}

async fn c13_an_outage_heals(env: Env) {
    let (locker, link) = env.faulty_locker().await;
    let lock = env.lock(&locker, "x", long().with_op_timeout(env.patience() * 3));
    for _ in 0..3 {
        link.set(Faults { refuse: true, ..Faults::NONE });
        link.cut();
        lock.try_lock().await.expect_err("an answer of a store that is not there");
        link.heal();
        becomes_free(&lock).await;
    }
}
