//! Tests that acquire, renew and release.

use std::time::Duration;

use lockkit_core::{
    Clock, ErrorKind, Kind, LockName, OwnerId,
    spi::{Backend as _, ClaimSpec, Lease, Mode, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;

use crate::support::*;

on_both! {
    c1_one_owner_at_a_time_and_the_next_has_a_larger_token,
    c4_tokens_rise_through_rollback_loss_and_restart,
    c5_a_second_attempt_of_the_same_claim_gets_its_own_token,
    c3_the_lease_counts_from_the_last_question_and_not_from_the_attempt,
    c3_a_lock_is_not_kept_by_the_timeout_of_an_attempt_that_was_busy,
    modes_that_a_row_lock_cannot_have_are_refused,
    c3_a_connection_with_another_locks_timeout_gets_its_own,
    c8_a_connection_that_the_server_has_closed_is_replaced,
}

async fn c1_one_owner_at_a_time_and_the_next_has_a_larger_token(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let other = store.another().await;
    let mut a = store.claim("a");
    let first = granted(a.attempt(Wait::No).await);
    let mut b = other.claim(spec_for("a", TTL)).unwrap();
    assert!(!busy(b.attempt(Wait::No).await).0);
    // One row is there already, and one is not.
    granted(store.claim("b").attempt(Wait::No).await);
    assert_eq!(a.release().await.unwrap(), Released::Freed);
    let second = granted(b.attempt(Wait::No).await);
    assert!(second.token > first.token);
    busy(a.attempt(Wait::No).await);
    assert_eq!(b.release().await.unwrap(), Released::Freed);
    assert_eq!(store.admin.count("lockkit_row").await, 2);
}

async fn c4_tokens_rise_through_rollback_loss_and_restart(flavor: SqlFlavor) {
    let mut store = Store::start(flavor).await;
    let mut last = None;
    for round in 0..6 {
        let mut claim = store.claim("a");
        let grant = tokio::time::timeout(SOON, async {
            loop {
                // After a restart, the first request finds out that the connections are gone.
                match claim.attempt(Wait::No).await {
                    Ok(lockkit_core::spi::Attempt::Granted(grant)) => return grant,
                    Ok(_) => tokio::task::yield_now().await,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        });
        let token = Some(grant.await.unwrap().token);
        assert!(token > last, "round {round}: {token:?} after {last:?}");
        last = token;
        match round % 3 {
            0 => drop(claim),
            1 => store.admin.kill(store.admin.thread("a").await).await,
            _ => {
                store.server.restart().unwrap();
                store.admin = Admin::to(&store.server).await;
            }
        }
    }
}

async fn c5_a_second_attempt_of_the_same_claim_gets_its_own_token(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    let first = granted(claim.attempt(Wait::No).await);
    assert_eq!(granted(claim.attempt(Wait::No).await).token, first.token);
    // The claim lost everything meanwhile, and starts again.
    store.admin.kill(store.admin.thread("a").await).await;
    assert!(granted(claim.attempt(Wait::No).await).token > first.token);
}

async fn c3_the_lease_counts_from_the_last_question_and_not_from_the_attempt(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let asked = Clock::Boot.now();
    let freeing = async {
        until("the other one waits", async || store.admin.waiting().await == 1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        given_up(holder.release()).await;
    };
    // With a longer lease the claim need not ask again, because so little of the lease has passed.
    let lease = SHORT * 3;
    let mut waiter = store.claim_for("a", lease);
    let (attempt, ()) = tokio::join!(waiter.attempt(Wait::Block(SOON)), freeing);
    let grant = granted(attempt);
    let Lease::Proven { at, lasts } = grant.lease else { panic!("{grant:?}") };
    assert_eq!(lasts, lease);
    assert!(asked.until(at) >= Duration::from_millis(300));
    let RenewalOutcome::Alive(Lease::Proven { at: later, .. }) = waiter.renew(None).await.unwrap()
    else {
        panic!("lost")
    };
    assert!(later > at);
}

async fn modes_that_a_row_lock_cannot_have_are_refused(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    for (kind, mode) in [(Kind::Mutex, Mode::Shared), (Kind::RwLock, Mode::Exclusive)] {
        let name = LockName::new(kind, "a").unwrap();
        let spec = ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT);
        let refused = store.mysql.claim(spec).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert!(refused.to_string().contains("strategy=optimistic"), "{refused}");
    }
}

/// The connection keeps the timeout of its last lock, so the server closes it when it is idle.
async fn c8_a_connection_that_the_server_has_closed_is_replaced(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let mut claim = store.claim_for("a", SHORT);
    for _ in 0..2 {
        granted(claim.attempt(Wait::No).await);
        let thread = store.admin.thread("a").await;
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        store.admin.until_ended(thread).await;
    }
}

async fn c3_a_connection_with_another_locks_timeout_gets_its_own(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let mut short = store.claim_for("a", SHORT);
    granted(short.attempt(Wait::No).await);
    let thread = store.admin.thread("a").await;
    assert_eq!(short.release().await.unwrap(), Released::Freed);
    let mut long = store.claim("b");
    granted(long.attempt(Wait::No).await);
    assert_eq!(store.admin.thread("b").await, thread, "another connection proves nothing here");
    tokio::time::sleep(SHORT + Duration::from_millis(1500)).await;
    assert!(matches!(long.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(long.release().await.unwrap(), Released::Freed);
}

async fn c3_a_lock_is_not_kept_by_the_timeout_of_an_attempt_that_was_busy(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&pool_size=2").await;
    let other = store.another().await;
    let mut holder = other.claim(spec_for("busy", TTL)).unwrap();
    granted(holder.attempt(Wait::No).await);
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    given_up(claim.release()).await;
    busy(store.claim_for("busy", SHORT).attempt(Wait::No).await);
    granted(claim.attempt(Wait::No).await);
    // With the timeout of the busy attempt, the server would end the connection within this time.
    tokio::time::sleep(SHORT + Duration::from_millis(1500)).await;
    let outcome = claim.renew(None).await.unwrap();
    assert!(matches!(outcome, RenewalOutcome::Alive(_)), "{outcome:?}");
}
