//! Tests of `strict_lease`: the next holder waits until the lease of a dead holder has ended.

use std::time::{Duration, Instant};

use lockkit_core::{
    Kind,
    spi::{Admin as _, Attempt, Backend as _, Claim, Grant, Released, Wait},
};

use crate::support::*;

/// The holder is dead, so only the end of its lease counts. A server that stalls does not bring
/// that end about earlier.
const LEASE: Duration = Duration::from_millis(4_500);

on_both! {
    c1_the_next_grant_is_not_before_the_lease_of_a_dead_holder_has_ended,
    c1_a_try_without_a_wait_gets_it_after_that_lease_too,
    c9_a_holder_that_hangs_is_followed_after_two_leases,
    c6_a_claim_that_gives_up_that_wait_leaves_the_lease_to_the_next,
    after_a_release_nobody_waits,
    c7_a_release_of_a_holder_that_died_ends_its_lease,
    c14_a_release_that_has_to_wait_still_shows_its_holder,
    c1_collecting_garbage_ends_no_lease,
    c5_a_claim_that_fails_behind_its_raise_says_so_and_leaves_no_lease,
    c5_another_attempt_of_a_holder_that_died_does_not_wait_for_its_own_lease,
}

async fn dead(store: &Store) -> Grant {
    let mut holder = store.claim_for("a", LEASE);
    let grant = granted(holder.attempt(Wait::No).await);
    store.admin.kill(store.admin.thread("a").await).await;
    grant
}

async fn acquire(claim: &mut Box<dyn Claim>, wait: Wait) -> Grant {
    let asking = async {
        loop {
            match claim.attempt(wait).await.unwrap() {
                Attempt::Granted(grant) => return grant,
                Attempt::Busy { retry_after, .. } => {
                    tokio::time::sleep(
                        retry_after.unwrap_or_default().min(Duration::from_millis(400)),
                    )
                    .await;
                }
            }
        }
    };
    tokio::time::timeout(SOON, asking).await.unwrap()
}

async fn c1_the_next_grant_is_not_before_the_lease_of_a_dead_holder_has_ended(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    assert!(!store.mysql.descriptor().exceptions.connection_bound);
    let started = Instant::now();
    let first = dead(&store).await;
    // The connection of the next claim would end before that, so it must be kept during the wait.
    let mut next = store.claim_for("a", Duration::from_secs(3));
    let (queued, retry_after) = busy(next.attempt(Wait::Block(SOON)).await);
    assert!(queued && retry_after.unwrap() <= LEASE);
    // This claim has the row, so no other claim comes in between.
    busy(store.claim("a").attempt(Wait::No).await);
    let second = acquire(&mut next, Wait::Block(SOON)).await;
    assert!(started.elapsed() >= LEASE, "{:?}", started.elapsed());
    assert!(second.token > first.token);
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

async fn c1_a_try_without_a_wait_gets_it_after_that_lease_too(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    let started = Instant::now();
    let first = dead(&store).await;
    // Each attempt has a claim of its own, which holds nothing after it.
    let trying = async {
        loop {
            let mut claim = store.claim("a");
            match claim.attempt(Wait::No).await.unwrap() {
                Attempt::Granted(grant) => return grant,
                Attempt::Busy { queued, retry_after } => {
                    assert!(!queued && retry_after.unwrap() <= LEASE);
                    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
    };
    let second = tokio::time::timeout(SOON, trying).await.unwrap();
    assert!(started.elapsed() >= LEASE, "{:?}", started.elapsed());
    assert!(second.token > first.token);
}

/// The holder's process is paused. The server ends its connection after one lease, and only then
/// the next claim begins to wait.
async fn c9_a_holder_that_hangs_is_followed_after_two_leases(flavor: SqlFlavor) {
    // The server counts in whole seconds.
    const LEASE: Duration = Duration::from_secs(4);
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    let mut holder = store.claim_for("a", LEASE);
    let started = Instant::now();
    let first = granted(holder.attempt(Wait::No).await);
    let mut next = store.claim("a");
    let second = acquire(&mut next, Wait::Block(SOON)).await;
    let took = started.elapsed();
    assert!(took >= LEASE * 2, "{took:?}");
    assert!(second.token > first.token);
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

async fn c6_a_claim_that_gives_up_that_wait_leaves_the_lease_to_the_next(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    let started = Instant::now();
    dead(&store).await;
    for loses_it in [false, true] {
        let mut claim = store.claim("a");
        assert!(busy(claim.attempt(Wait::Block(SOON)).await).0);
        if !loses_it {
            assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        }
    }
    let mut next = store.claim("a");
    acquire(&mut next, Wait::Block(SOON)).await;
    assert!(started.elapsed() >= LEASE, "{:?}", started.elapsed());
}

async fn after_a_release_nobody_waits(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    for _ in 0..3 {
        let mut claim = store.claim("a");
        granted(claim.attempt(Wait::No).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

/// Catches a sign that is removed before the row is free, also where the release has failed.
async fn c14_a_release_that_has_to_wait_still_shows_its_holder(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token;
    // Another process, like an operator's.
    let operator = store.another().await;
    let is_seen = async || {
        let seen = operator.inspect(&mutex("a")).await.unwrap();
        assert_eq!(
            seen.holders.iter().map(|holder| holder.token).collect::<Vec<_>>(),
            [Some(token)]
        );
        assert_eq!(operator.names(Kind::Mutex, "").await.unwrap(), [mutex("a")]);
        // The lock can't be freed now, and the operator gets no answer that it is free.
        operator.force_release(&mutex("a"), token).await.unwrap_err();
    };
    store.admin.run("BEGIN").await;
    store.admin.run("SELECT * FROM lockkit_fence FOR UPDATE").await;
    let releasing = tokio::spawn(async move {
        let answer = claim.release().await;
        (claim, answer)
    });
    let waits = "information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE %open_us=0%'";
    until("the release waits", || async { store.admin.count(waits).await == 1 }).await;
    is_seen().await;
    let (mut claim, answer) = releasing.await.unwrap();
    assert!(answer.unwrap_err().is_temporary());
    is_seen().await;
    store.admin.run("ROLLBACK").await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert!(operator.inspect(&mutex("a")).await.unwrap().holders.is_empty());
    assert!(operator.names(Kind::Mutex, "").await.unwrap().is_empty());
    let mut next = store.claim("a");
    assert!(granted(next.attempt(Wait::No).await).token > token);
}

async fn c1_collecting_garbage_ends_no_lease(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&strict_lease=true&retention=60s").await;
    dead(&store).await;
    store.admin.run("UPDATE lockkit_fence SET acquired_us=1,open_us=100000000000,fence=1").await;
    assert_eq!(store.mysql.collect_garbage().await.unwrap(), 0);
    assert!(
        busy(store.claim("a").attempt(Wait::No).await).1.unwrap() > Duration::from_secs(90_000)
    );
}

/// Catches a release that finds its connection gone and leaves the lease. Then the next owner would
/// wait for a lease that has no holder. Also catches one that knows its lease only by the owner,
/// which a try before it removes.
async fn c7_a_release_of_a_holder_that_died_ends_its_lease(flavor: SqlFlavor) {
    for is_tried in [false, true] {
        let store = Store::start_with(flavor, "&strict_lease=true").await;
        let mut holder = store.claim_for("a", Duration::from_secs(100_000));
        granted(holder.attempt(Wait::No).await);
        store.admin.kill(store.admin.thread("a").await).await;
        if is_tried {
            let (_, left) = busy(store.claim("a").attempt(Wait::No).await);
            assert!(left.is_some(), "the row is free, and the lease is open");
        }
        assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
        granted(store.claim("a").attempt(Wait::No).await);
    }
}

#[derive(Debug, PartialEq)]
enum Fault {
    RowLost,
    NoAnswer,
    GivenUp,
}

/// Catches an error that says that nothing is left, although the strict lease is stored. The next
/// claim would wait until it ends.
async fn c5_a_claim_that_fails_behind_its_raise_says_so_and_leaves_no_lease(flavor: SqlFlavor) {
    for fault in [Fault::RowLost, Fault::NoAnswer, Fault::GivenUp] {
        let store = Store::start_with(flavor, "&strict_lease=true").await;
        store.make_token().await;
        let (mysql, proxy) = store.behind_proxy().await;
        let mut claim = mysql.claim(spec_for("a", LEASE)).unwrap();
        store.admin.run("BEGIN").await;
        store.admin.run("SELECT * FROM lockkit_fence FOR UPDATE").await;
        let mut asking = claim.attempt(Wait::No);
        let waits = "information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE %open_us=%'";
        let is_sent = || async { store.admin.count(waits).await == 1 };
        before_the_answer(&mut asking, "the raise waits", is_sent).await;
        proxy.set(|toxics| toxics.down.hold = true);
        store.admin.run("COMMIT").await;
        let is_raised = || async { open_us(&store.admin).await > 0 };
        before_the_answer(&mut asking, "the raise is committed", is_raised).await;
        if fault == Fault::RowLost {
            store.admin.kill(store.admin.thread("a").await).await;
            // By then the lease is so old that the claim asks the lock's connection once more.
            tokio::time::sleep(LEASE / 50).await;
        }
        if fault == Fault::NoAnswer {
            proxy.reset_all();
        }
        if fault != Fault::GivenUp {
            proxy.heal();
            let error = asking.as_mut().await.unwrap_err();
            assert!(error.is_temporary() && error.is_outcome_unknown(), "{fault:?}: {error}");
        }
        drop(asking);
        proxy.heal();
        // It removes the owner from the row of the token, if the row of the name is free again.
        busy(store.claim("a").attempt(Wait::No).await);
        let released = persistently(async || claim.release().await).await;
        assert_eq!((released, open_us(&store.admin).await), (Released::NotHeld, 0), "{fault:?}");
    }
}

async fn open_us(admin: &Admin) -> u64 {
    admin.ask("SELECT open_us FROM lockkit_fence").await
}

async fn c5_another_attempt_of_a_holder_that_died_does_not_wait_for_its_own_lease(
    flavor: SqlFlavor,
) {
    let store = Store::start_with(flavor, "&strict_lease=true").await;
    let mut holder = store.claim("a");
    let first = granted(holder.attempt(Wait::No).await);
    store.admin.kill(store.admin.thread("a").await).await;
    let second = granted(holder.attempt(Wait::No).await);
    assert!(second.token > first.token);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
}
