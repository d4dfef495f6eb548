//! Tests of connections and servers that end, stop and fall silent.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use lockkit_core::{
    ErrorKind, Kind, LockGuard, Locker,
    spi::{Attempt, Backend as _, Lease, LossReason, Mode, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::{SqlFlavor, claims::given_up};
use tokio::time::{Instant, sleep, timeout};

use crate::support::*;

on_both!(
    c10_a_killed_connection_is_replaced_at_the_next_renewal,
    c3_holders_and_waiters_survive_a_restart_of_the_server,
    c2_c4_a_ticket_outlives_a_restart_of_the_server_and_works_once,
    c3_c9_a_holder_of_a_stopped_server_learns_it_in_time,
    c3_c9_a_holder_without_a_network_is_lost_before_the_next_grant,
    c2_a_late_renewal_shortens_nothing,
    c2_a_late_renewal_revives_nothing,
    c5_a_retry_holds_for_the_lease_that_the_server_reports,
    c5_a_late_attempt_after_the_release_takes_nothing,
    c5_a_release_that_fails_midway_forgets_nothing,
    c5_an_unknown_grant_is_released_also_after_refusals,
    c5_c7_a_release_that_is_refused_midway_has_freed_nothing_before,
);

async fn hold(locker: &Locker, name: &str) -> LockGuard {
    within(SOON, "a lock", locker.mutex(name).unwrap().lock()).await.unwrap()
}

fn restart(bed: &mut Bed) {
    Arc::get_mut(&mut bed.server).expect("it is ours alone").restart().unwrap();
}

/// Checks that a ticket gives no grant any more.
async fn assert_stale(locker: &Locker, ticket: &str) {
    let resumed = within(SOON, "a refusal", locker.resume(ticket)).await;
    let error = resumed.expect_err("a stale ticket gave a grant");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

/// Catches a holder that loses its lock with its connection, and a dead connection that is asked
/// again and again.
async fn c10_a_killed_connection_is_replaced_at_the_next_renewal(flavor: SqlFlavor) {
    let bed = Bed::steady(flavor);
    let locker = with_ttl(bed.connect("").await, SHORT * 2);
    let guards = [hold(&locker, "a").await, hold(&locker, "b").await];
    let mut admin = bed.admin().await;
    let waiting = locker.mutex("a").unwrap();
    let waiting = tokio::spawn(async move { waiting.lock().await });
    let ends = format!("SELECT MIN(expires_us) FROM {}", bed.table("lock"));
    for _ in 0..3 {
        assert!(admin.kill_all().await > 0);
        persistently(async || guards[0].renew().await).await;
        let before = admin.one::<u64>(&ends).await;
        until("both are renewed", async || admin.one::<u64>(&ends).await > before).await;
        assert!(guards.iter().all(|guard| guard.is_held()), "its lease ended with a connection");
    }
    // After a kill, the first request may be a release, or an attempt for another lock.
    admin.kill_all().await;
    let [first, second] = guards;
    second.release().await.unwrap();
    admin.kill_all().await;
    within(SOON, "a try", async { while locker.mutex("c").unwrap().try_lock().await.is_err() {} })
        .await;
    let token = first.fencing_token();
    first.release().await.unwrap();
    let next = within(SOON, "the waiter", waiting).await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
}

async fn c3_holders_and_waiters_survive_a_restart_of_the_server(flavor: SqlFlavor) {
    let mut bed = Bed::own(flavor, &[]);
    let here = bed.locker("").await;
    let there = bed.locker("").await;
    let guard = hold(&here, "a").await;
    let reader = within(SOON, "a lock", here.rw_lock("a").unwrap().read()).await.unwrap();
    let waiting = there.mutex("a").unwrap();
    let waiting = tokio::spawn(async move { waiting.lock().await });
    let mut admin = bed.admin().await;
    until("it waits", async || admin.one::<u64>(bed.wanted("a")).await == 1).await;
    restart(&mut bed);
    for guard in [&guard, &reader] {
        let renewed = timeout(SOON, async { while guard.renew().await.is_err() {} });
        renewed.await.expect("no renewal after the restart");
        assert!(guard.is_held() && guard.remaining() > TTL / 2);
    }
    assert!(!waiting.is_finished(), "two hold it, or the wait has failed");
    let writer = there.rw_lock("a").unwrap();
    assert!(persistently(async || writer.try_write().await).await.is_none());
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = within(SOON, "the waiter", waiting).await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    reader.release().await.unwrap();
}

/// Catches a ticket whose grant ends with the memory of the server, and a used ticket that works
/// again after a restart.
async fn c2_c4_a_ticket_outlives_a_restart_of_the_server_and_works_once(flavor: SqlFlavor) {
    let mut bed = Bed::own(flavor, &[]);
    let first = bed.locker("").await;
    let guards = [
        hold(&first, "a").await,
        within(SOON, "a lock", first.rw_lock("a").unwrap().read()).await.unwrap(),
    ];
    let mut tickets = Vec::new();
    for guard in guards {
        let token = guard.fencing_token();
        tickets.push((guard.into_ticket().await.unwrap(), token));
    }
    restart(&mut bed);
    let next = bed.locker("").await;
    let mut resumed = Vec::new();
    for (ticket, token) in &tickets {
        let guard = within(SOON, "a resume", next.resume(ticket)).await.unwrap();
        assert_eq!(guard.fencing_token(), *token);
        assert!(guard.is_held() && guard.remaining() > TTL / 2);
        assert_stale(&next, ticket).await;
        resumed.push(guard);
    }

    restart(&mut bed);
    let other = bed.locker("").await;
    for (ticket, _) in &tickets {
        assert_stale(&other, ticket).await;
    }
    let mutex = other.mutex("a").unwrap();
    let writer = other.rw_lock("a").unwrap();
    assert!(persistently(async || mutex.try_lock().await).await.is_none());
    assert!(persistently(async || writer.try_write().await).await.is_none());
    for guard in resumed {
        persistently(async || guard.renew().await).await;
        guard.release().await.unwrap();
    }
    let last = [
        hold(&other, "a").await,
        within(SOON, "a lock", other.rw_lock("a").unwrap().write()).await.unwrap(),
    ];
    for (guard, (_, token)) in last.into_iter().zip(&tickets) {
        assert!(guard.fencing_token() > *token);
        guard.release().await.unwrap();
    }
}

async fn c3_c9_a_holder_of_a_stopped_server_learns_it_in_time(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    // A waiter survives an outage of its own ttl.
    let here = with_ttl(bed.connect("").await, SHORT);
    let there = bed.locker("").await;
    let guard = hold(&here, "a").await;
    let waiting = there.mutex("a").unwrap();
    let waiting = tokio::spawn(async move { waiting.lock().await });
    sleep(SLACK).await;
    bed.server.pause().unwrap();
    let start = Instant::now();
    within(SOON, "noticing it", guard.lost().wait()).await;
    assert!(!guard.is_held() && !waiting.is_finished());
    sleep((SHORT * 3 / 2).saturating_sub(start.elapsed())).await;
    bed.server.resume().unwrap();
    // A renewal that waited in the socket must not revive the ended lease.
    let next = within(SOON, "the next grant", waiting).await.unwrap().unwrap();
    assert!(next.fencing_token() > guard.fencing_token());
    assert!(!guard.is_held() && guard.renew().await.is_err());
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    next.renew().await.unwrap();
    next.release().await.unwrap();
}

async fn c3_c9_a_holder_without_a_network_is_lost_before_the_next_grant(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let here = with_ttl(backend, SHORT);
    let there = bed.locker("").await;
    let guard = hold(&here, "a").await;
    let waiting = tokio::spawn({
        let mutex = there.mutex("a").unwrap();
        let lost = guard.lost();
        async move { (mutex.lock().await.unwrap(), lost.is_lost()) }
    });
    sleep(SLACK).await;
    proxy.set(|toxics| (toxics.up.hold, toxics.down.hold) = (true, true));
    let reason = within(SOON, "noticing it", guard.lost().wait()).await;
    assert_eq!(reason, LossReason::Expired, "by the deadline");
    assert!(!guard.is_held());
    let (next, was_lost) = within(SOON, "the next grant", waiting).await.unwrap();
    assert!(was_lost, "C3: the holder still had it at the next grant");
    assert!(next.fencing_token() > guard.fencing_token());
    proxy.heal();
    next.release().await.unwrap();
}

/// The renewal waited for its row, or in the network, while the lease was made longer.
async fn c2_a_late_renewal_shortens_nothing(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("pool_size=1").await;
    let mut admin = bed.admin().await;
    bed.wait_for_rows(&mut admin).await;
    let mut other = bed.admin().await;
    for kind in [Kind::Mutex, Kind::RwLock] {
        let table = bed.table(if kind == Kind::Mutex { "lock" } else { "holder" });
        let mut held = claim_in(&backend, kind, "a", Mode::Exclusive);
        granted(held.attempt(Wait::No).await);
        let longer = TTL * 4;
        other.run("START TRANSACTION").await;
        let row = format!("WHERE kind='{kind}' AND name='a'");
        other
            .run(format!("UPDATE {table} SET expires_us={NOW}+{} {row}", longer.as_micros()))
            .await;
        let renewal = tokio::spawn(async move {
            let outcome = held.renew(None).await;
            (outcome, held)
        });
        let waits = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER='lockkit' AND COMMAND<>'Sleep' \
             AND INFO LIKE 'UPDATE%{}%'",
            bed.prefix
        );
        until("the renewal waits for its row", async || admin.one::<u64>(&waits).await > 0).await;
        other.run("COMMIT").await;
        let (outcome, mut held) = renewal.await.unwrap();
        let outcome = outcome.unwrap();
        let RenewalOutcome::Alive(Lease::For(left)) = outcome else { panic!("{outcome:?}") };
        // The value of the server, or the one that was asked for: the row keeps both promises.
        assert!(left >= TTL && left <= longer, "{left:?}");
        let stands: u64 =
            admin.one(format!("SELECT CAST(expires_us AS SIGNED)-{NOW} FROM {table} {row}")).await;
        assert!(Duration::from_micros(stands) > longer / 2, "shortened to {stands} µs");
        assert_eq!(held.release().await.unwrap(), Released::Freed);
    }
}

/// The lease has ended, and no other owner has taken the lock yet.
async fn c2_a_late_renewal_revives_nothing(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut admin = bed.admin().await;
    for kind in [Kind::Mutex, Kind::RwLock] {
        let table = bed.table(if kind == Kind::Mutex { "lock" } else { "holder" });
        let mut held = claim_in(&backend, kind, "a", Mode::Exclusive);
        granted(held.attempt(Wait::No).await);
        admin.run(format!("UPDATE {table} SET expires_us={NOW}-1 WHERE kind='{kind}'")).await;
        let outcome = held.renew(None).await.unwrap();
        assert!(matches!(outcome, RenewalOutcome::Lost(_)), "{outcome:?}");
        let live: u64 =
            admin.one(format!("SELECT COUNT(*) FROM {table} WHERE expires_us>{NOW}")).await;
        assert_eq!(live, 0);
        assert_eq!(held.release().await.unwrap(), Released::NotHeld);
    }
}

async fn c5_a_retry_holds_for_the_lease_that_the_server_reports(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let mut admin = bed.admin().await;
    for kind in [Kind::Mutex, Kind::RwLock] {
        let table = bed.table(if kind == Kind::Mutex { "lock" } else { "holder" });
        // The connection is ready before the replies are lost.
        let mut warm = claim_in(&backend, kind, "warm", Mode::Exclusive);
        granted(warm.attempt(Wait::No).await);
        given_up(warm.release()).await;
        let mut held = claim_in(&backend, kind, "a", Mode::Exclusive);
        proxy.set(|toxics| toxics.down.discard = true);
        let fence = format!("SELECT fence FROM {table} WHERE kind='{kind}' AND name='a'");
        let is_over = async || !admin.all::<u64>(&fence).await.is_empty();
        unanswered(held.attempt(Wait::No), is_over).await;
        let applied: u64 = admin.one(&fence).await;
        proxy.heal();
        sleep(SLACK).await;
        let sent = Instant::now();
        let grant = within(OP_TIMEOUT, "the retry", held.attempt(Wait::No)).await;
        let grant = match grant {
            Err(error) if error.is_outcome_unknown() => granted(held.attempt(Wait::No).await),
            grant => granted(grant),
        };
        assert_eq!(grant.token.get(), applied, "a second grant for one owner");
        let Lease::For(lease) = grant.lease else { panic!("{:?}", grant.lease) };
        let stands: u64 = admin
            .one(format!(
                "SELECT CAST(expires_us AS SIGNED)-{NOW} FROM {table} WHERE kind='{kind}' AND name='a'"
            ))
            .await;
        let until = Duration::from_micros(stands) + sent.elapsed();
        assert!(
            until >= lease,
            "it holds for {lease:?}, and the row for {until:?} from the retry on"
        );
        assert_eq!(held.release().await.unwrap(), Released::Freed);
        let rows: u64 =
            admin.one(format!("SELECT COUNT(*) FROM {table} WHERE expires_us>{NOW}")).await;
        assert_eq!(rows, 0);
    }
}

/// A proxy delivers the attempt when its client has long given up. For a row that the client has
/// seen, the attempt is another statement.
async fn c5_a_late_attempt_after_the_release_takes_nothing(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let there = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    for is_known in [false, true] {
        let (backend, proxy) = bed.behind_proxy(QUIET).await;
        next_token(if is_known { &backend } else { &there }, "a").await;
        // Otherwise a statement would have to be prepared first, and only that would come late.
        next_token(&backend, "warm").await;
        next_token(&backend, "warm").await;
        let mut spec = spec("a");
        spec.op_timeout = SLACK;
        let mut held = backend.claim(spec.clone()).unwrap();
        proxy.set(|toxics| toxics.up.hold = true);
        assert!(timeout(spec.op_timeout, held.attempt(Wait::No)).await.is_err());
        // It is not known whether the attempt is over, and the release does not say that it is.
        let given_up = timeout(spec.op_timeout, held.release()).await;
        assert!(!matches!(given_up, Ok(Ok(Released::Freed))), "{given_up:?}");
        // After a stall of the handshake, the client's estimate of the server's time is ahead.
        sleep(SLACK + Duration::from_secs(4)).await;
        let executed = admin.status("Com_stmt_execute").await;
        let connections = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER='lockkit'";
        let before = admin.all::<u64>(connections).await;
        proxy.heal();
        // The lock is free meanwhile, because a holder would keep a late attempt from it.
        until("the late attempt has come, or its connection has gone", async || {
            let now = admin.all::<u64>(connections).await;
            admin.status("Com_stmt_execute").await > executed
                || before.iter().any(|id| !now.contains(id))
        })
        .await;
        next_token(&there, "a").await;
    }
}

/// Catches a release that ends the earlier request, fails to take it back, and treats its next call
/// as the first one.
async fn c5_a_release_that_fails_midway_forgets_nothing(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let (backend, proxy) = bed.behind_proxy("pool_size=1").await;
    // Each statement is prepared by then, so that a request that is sent now is applied.
    for name in ["a", "a", "busy"] {
        next_token(&backend, name).await;
    }
    let mut spec = spec("a");
    // So long that the attempt comes in time, but the release fails soon.
    spec.op_timeout = SHORT;
    let mut claim = backend.claim(spec.clone()).unwrap();
    let mut admin = bed.admin().await;
    let mut locked = bed.admin().await;
    bed.wait_for_rows(&mut admin).await;
    proxy.set(|toxics| toxics.down.discard = true);
    // The attempt is dropped once it is applied, and before its reply can come.
    let live =
        format!("SELECT COUNT(*) FROM {} WHERE name='a' AND expires_us>{NOW}", bed.table("lock"));
    unanswered(claim.attempt(Wait::No), async || admin.one::<u64>(&live).await == 1).await;
    proxy.heal();
    // The pool has another connection now. It inserts a row, and then it waits for the next one.
    next_token(&backend, "new").await;
    locked.run("START TRANSACTION").await;
    locked.run(format!("SELECT 1 FROM {} WHERE name='busy' FOR UPDATE", bed.table("lock"))).await;
    let mut other = backend.claim(self::spec("busy")).unwrap();
    let waiting = tokio::spawn(async move { other.attempt(Wait::No).await });
    until("it waits for the row", async || admin.one::<u64>(bed.waiting()).await > 0).await;
    claim.release().await.unwrap_err();
    locked.run("ROLLBACK").await;
    let _ = waiting.await.unwrap();
    // An earlier call may have freed it.
    let _ = persistently(async || claim.release().await).await;
    assert_eq!(admin.one::<u64>(&live).await, 0);
}

/// A grant that was applied without a reply is still there after later attempts were refused the
/// row, for however long.
async fn c5_an_unknown_grant_is_released_also_after_refusals(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let (backend, proxy) = bed.behind_proxy("").await;
    let mut admin = bed.admin().await;
    // Each statement is prepared by then, so that a request that is sent now is applied.
    for _ in 0..2 {
        next_token(&backend, "a").await;
    }
    let mut spec = spec("a");
    // So long that the attempt comes in time.
    spec.op_timeout = SHORT;
    let mut held = backend.claim(spec.clone()).unwrap();
    proxy.set(|toxics| toxics.down.discard = true);
    let live =
        format!("SELECT COUNT(*) FROM {} WHERE name='a' AND expires_us>{NOW}", bed.table("lock"));
    let asked = Instant::now();
    unanswered(held.attempt(Wait::No), async || admin.one::<u64>(&live).await == 1).await;
    proxy.heal();
    admin.run("START TRANSACTION").await;
    admin
        .run(format!(
            "SELECT * FROM {} WHERE kind='mutex' AND name='a' FOR UPDATE",
            bed.table("lock")
        ))
        .await;
    // After that time, no earlier request can be under way any more. It would come after its
    // not-after time, and has waited for as long as it may.
    while asked.elapsed() < spec.op_timeout + Duration::from_secs(7) {
        match held.attempt(Wait::No).await {
            Ok(Attempt::Busy { .. }) => {}
            Err(error) if error.is_temporary() => {}
            other => panic!("{other:?}"),
        }
    }
    admin.run("ROLLBACK").await;
    assert_eq!(persistently(async || held.release().await).await, Released::Freed);
    assert!(backend.inspect(&mutex("a")).await.unwrap().holders.is_empty());
}

/// Catches a release that consists of two changes, when the second is refused for certain after the
/// first has freed the lock.
async fn c5_c7_a_release_that_is_refused_midway_has_freed_nothing_before(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut gate = bed.admin().await;
    let holders = bed.table("holder");
    let trigger = "FOR EACH ROW DO GET_LOCK('gate',60),RELEASE_LOCK('gate')";
    admin.run(format!("CREATE TRIGGER lockkit.gate AFTER DELETE ON {holders} {trigger}")).await;
    let one = NonZeroU32::MIN;
    let two = NonZeroU32::MIN.saturating_add(1);
    for (kind, mode) in [
        (Kind::RwLock, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
        (Kind::Semaphore, Mode::Permits { count: one, limit: two }),
    ] {
        let mut held = claim_in(&backend, kind, "a", mode);
        granted(held.attempt(Wait::No).await);
        assert_eq!(gate.one::<u8>("SELECT GET_LOCK('gate',0)").await, 1);
        let releasing = tokio::spawn(async move { (held.release().await, held) });
        let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE='User lock'";
        until("its row is deleted", async || admin.one::<u64>(waits).await == 1).await;
        // The demotion waits for the statement that runs, and allows none after it.
        let mut demoter = bed.admin().await;
        let demoting = tokio::spawn(async move { demoter.run("SET GLOBAL read_only=1").await });
        let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                     WHERE INFO LIKE 'SET GLOBAL read_only%' AND STATE LIKE 'Waiting for %lock'";
        until("the server is being demoted", async || admin.one::<u64>(waits).await == 1).await;
        gate.run("DO RELEASE_LOCK('gate')").await;
        let (answer, mut held) = within(SOON, "the release", releasing).await.unwrap();
        within(SOON, "the demotion", demoting).await.unwrap();
        let refused = claim_in(&backend, kind, "b", mode).attempt(Wait::No).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly, "nothing was refused here: {refused}");
        let left: u64 = admin.one(format!("SELECT COUNT(*) FROM {holders}")).await;
        assert_eq!(answer.unwrap(), Released::Freed, "{mode:?}, and {left} rows are left");
        assert_eq!(left, 0, "{mode:?}");
        admin.run("SET GLOBAL read_only=0").await;
        let again = held.release().await.unwrap();
        assert_eq!(again, Released::NotHeld, "{mode:?}: it was freed once");
        let mut next = claim_in(&backend, kind, "a", mode);
        granted(next.attempt(Wait::No).await);
        given_up(next.release()).await;
    }
}
