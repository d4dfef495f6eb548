//! Tests of holders that lose their connection, hang, or use a demoted server.

use std::time::{Duration, Instant};

use lockkit_core::{
    ErrorKind, FencingToken, LockOptions,
    spi::{Attempt, Backend as _, LossReason, Note, Released, RenewalOutcome, Wait},
    url::StoreUrl,
};
use lockkit_fixture::claims::{self, given_up};
use lockkit_mysql::{Config, MySql};

use crate::support::*;

on_both! {
    c3_a_killed_connection_is_a_lost_lock,
    c1_a_demoted_server_keeps_no_row_lock_and_grants_none,
    c3_a_guard_learns_of_a_killed_connection_long_before_its_lease_ends,
    c9_a_holder_that_hangs_is_freed_by_the_server,
    c10_a_slow_answer_is_waited_for_by_the_next_question,
    c10_a_lock_with_a_short_lease_is_kept_by_its_renewals,
    c6_a_claim_that_is_dropped_leaves_no_lock,
    c7_a_release_right_after_a_kill_is_not_held,
    c5_a_claim_that_may_have_locked_the_row_says_so,
    c5_a_claim_whose_connections_break_before_its_raise_says_so,
    c5_c7_a_release_that_can_not_look_for_its_connection_ends_in_time,
    c8_a_holder_whose_connection_is_silent_competes_again,
}

async fn c3_a_killed_connection_is_a_lost_lock(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    store.admin.kill(store.admin.thread("a").await).await;
    assert_eq!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::SessionLost));
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

/// Catches a holder that believes for ever that it has the row, because its connection to a demoted
/// server says so. The new primary has no row locks, and grants the same name at once. A user who
/// may bypass `read_only` must not be granted a lock there either.
async fn c1_a_demoted_server_keeps_no_row_lock_and_grants_none(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let url = format!("{}?strategy=pessimistic&connect_timeout=20s", store.server.admin_url());
    let mighty =
        MySql::connect(Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap()).await.unwrap();
    let mut first = store.claim("a");
    let mut second = mighty.claim(spec_for("b", TTL)).unwrap();
    granted(first.attempt(Wait::No).await);
    let token = granted(second.attempt(Wait::No).await).token;
    store.admin.run("SET GLOBAL read_only=1").await;
    let raised = second.raise_token(FencingToken::new(token.get() + 1_000_000)).await;
    assert_eq!(raised.unwrap_err().kind(), ErrorKind::ReadOnly);
    let noted = second.write_note(&Note::new(1, "a".to_owned())).await;
    assert_eq!(noted.unwrap_err().kind(), ErrorKind::ReadOnly);
    for holder in [&mut first, &mut second] {
        assert_eq!(holder.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
        given_up(holder.release()).await;
    }
    for mysql in [&store.mysql, &mighty] {
        let mut newcomer = mysql.claim(spec_for("c", TTL)).unwrap();
        let error = newcomer.attempt(Wait::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        let error = mysql.inspect(&mutex("c")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    }
    store.admin.run("SET GLOBAL read_only=0").await;
    let mut newcomer = mighty.claim(spec_for("c", TTL)).unwrap();
    granted(newcomer.attempt(Wait::No).await);
}

async fn c3_a_guard_learns_of_a_killed_connection_long_before_its_lease_ends(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    store.admin.kill(store.admin.thread("a").await).await;
    // Long before the lease ends.
    let reason =
        tokio::time::timeout(SOON, guard.lost().wait()).await.expect("it does not hear of it");
    assert_eq!(reason, LossReason::SessionLost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    locker.shutdown().await.unwrap();
}

/// The holder's process is paused: it asks nothing and closes nothing.
async fn c9_a_holder_that_hangs_is_freed_by_the_server(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim_for("a", SHORT);
    let started = Instant::now();
    granted(holder.attempt(Wait::No).await);
    let mut waiter = store.claim("a");
    let second = tokio::time::timeout(SOON, async {
        loop {
            if let Attempt::Granted(grant) = waiter.attempt(Wait::Block(SOON)).await.unwrap() {
                return grant;
            }
        }
    });
    second.await.unwrap();
    let took = started.elapsed();
    // How long after that depends on the store's stated delay and on the machine.
    assert!(took >= SHORT, "{took:?}");
    // Another owner has the lock by now.
    assert_eq!(holder.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
}

async fn c10_a_slow_answer_is_waited_for_by_the_next_question(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    store.server.pause().unwrap();
    for _ in 0..3 {
        tokio::time::timeout(Duration::from_millis(50), claim.renew(None)).await.unwrap_err();
    }
    store.server.resume().unwrap();
    let outcome = tokio::time::timeout(SOON, claim.renew(None)).await.unwrap().unwrap();
    assert!(matches!(outcome, RenewalOutcome::Alive(_)), "{outcome:?}");
    // A release also waits for the answer.
    store.server.pause().unwrap();
    tokio::time::timeout(Duration::from_millis(50), claim.renew(None)).await.unwrap_err();
    tokio::time::timeout(Duration::from_millis(50), claim.release()).await.unwrap_err();
    store.server.resume().unwrap();
    assert_eq!(
        tokio::time::timeout(SOON, claim.release()).await.unwrap().unwrap(),
        Released::Freed
    );
    granted(store.claim("a").attempt(Wait::No).await);
}

async fn c10_a_lock_with_a_short_lease_is_kept_by_its_renewals(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let mutex =
        locker.mutex("a").unwrap().with_options(LockOptions::default().with_ttl(SHORT)).unwrap();
    let guard = mutex.lock().await.unwrap();
    // The server would end an idle connection after the lease.
    tokio::time::sleep(SHORT + Duration::from_millis(1500)).await;
    assert!(guard.is_held());
    busy(store.claim("a").attempt(Wait::No).await);
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

async fn c6_a_claim_that_is_dropped_leaves_no_lock(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    drop(claim);
    let mut next = store.claim("a");
    granted(next.attempt(Wait::Block(SOON)).await);
}

async fn c7_a_release_right_after_a_kill_is_not_held(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    store.admin.kill(store.admin.thread("a").await).await;
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    granted(store.claim("a").attempt(Wait::No).await);
}

/// Catches an error that says that nothing is left, although the server has locked the row. It
/// keeps it until it notices that the connection is gone.
async fn c5_a_claim_that_may_have_locked_the_row_says_so(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    store.make_token().await;
    let (mysql, proxy) = store.behind_proxy().await;
    let mut claim = mysql.claim(spec_for("a", TTL)).unwrap();
    proxy.set(|toxics| toxics.down.hold = true);
    let mut asking = claim.attempt(Wait::No);
    let is_locked = || async {
        // The server renews that table only if it was not read for so long.
        tokio::time::sleep(Duration::from_millis(110)).await;
        store.admin.count("information_schema.INNODB_TRX WHERE trx_rows_locked>0").await == 1
    };
    before_the_answer(&mut asking, "the row is locked", is_locked).await;
    proxy.reset_all();
    let error = asking.await.unwrap_err();
    assert!(error.is_temporary() && error.is_outcome_unknown(), "{error}");
    proxy.heal();
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    granted(store.claim("a").attempt(Wait::Block(SOON)).await);
}

/// Catches an attempt that waits for the same silent connection each time.
async fn c8_a_holder_whose_connection_is_silent_competes_again(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let (mysql, proxy) = store.behind_proxy().await;
    let mut claim = mysql.claim(claims::spec("a", TTL, SHORT)).unwrap();
    granted(claim.attempt(Wait::No).await);
    proxy.set(|toxics| toxics.down.hold = true);
    let attempt = tokio::time::timeout(SOON, claim.attempt(Wait::No)).await;
    let error = attempt.expect("it waits for the silent connection").unwrap_err();
    assert!(error.is_temporary(), "{error}");
    proxy.heal();
    until("it is granted again", async || {
        matches!(claim.attempt(Wait::No).await, Ok(Attempt::Granted(_)))
    })
    .await;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// The row is locked, and the server may keep it until it notices that the connection is gone.
async fn c5_a_claim_whose_connections_break_before_its_raise_says_so(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    store.make_token().await;
    let (mysql, proxy) = store.behind_proxy().await;
    let mut claim = mysql.claim(spec_for("a", TTL)).unwrap();
    store.admin.run("BEGIN").await;
    store.admin.run("SELECT * FROM lockkit_fence FOR UPDATE").await;
    let mut asking = claim.attempt(Wait::No);
    let waits = "information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE %open_us=%'";
    before_the_answer(&mut asking, "the raise waits", async || store.admin.count(waits).await == 1)
        .await;
    proxy.reset_all();
    let error = asking.await.unwrap_err();
    assert!(error.is_temporary() && error.is_outcome_unknown(), "{error}");
    store.admin.run("ROLLBACK").await;
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    granted(store.claim("a").attempt(Wait::Block(SOON)).await);
}

/// Catches a release that the core has to cut off. The next one would find the connection gone, and
/// take that for a loss that came before.
async fn c5_c7_a_release_that_can_not_look_for_its_connection_ends_in_time(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let (mysql, proxy) = store.behind_proxy().await;
    let mut claim = mysql.claim(claims::spec("a", TTL, SHORT)).unwrap();
    granted(claim.attempt(Wait::No).await);
    proxy.set(|toxics| toxics.accept_hole = true);
    proxy.reset_all();
    // It fails on the other connection of the claim, so that the release has to open one.
    claim.write_note(&Note::default().next("a")).await.unwrap_err();
    let released = tokio::time::timeout(SHORT, claim.release()).await;
    let error = released.expect("it does not end in time").unwrap_err();
    assert!(error.is_outcome_unknown(), "{error}");
    proxy.heal();
    let released = persistently(async || claim.release().await).await;
    assert_eq!(released, Released::NotHeld);
    granted(store.claim("a").attempt(Wait::Block(SOON)).await);
}
