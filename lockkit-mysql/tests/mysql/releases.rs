//! Tests of releases that a busy client sends together.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use lockkit_conformance::Witness;
use lockkit_core::{
    Kind, Result,
    spi::{Attempt, Backend as _, Claim, Mode, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_mysql::MySql;
use tokio::{task::JoinSet, time::Instant};

use crate::support::*;
use crate::{crowd::stay, rows::rows_by_key};

on_both!(
    c7_releases_that_come_together_are_one_statement,
    c7_each_release_of_a_batch_reports_its_own_outcome,
    c5_a_batch_without_an_answer_is_unknown_to_each_release,
    c6_a_release_that_is_dropped_in_a_batch_frees_its_lock,
    c6_a_batch_that_nobody_waits_for_leaves_nothing,
    c4_c5_a_batch_that_arrives_again_frees_no_later_grant,
    c8_a_locked_row_delays_the_others_of_its_batch_for_a_while_only,
    c1_c4_locks_that_are_released_in_batches_never_overlap,
);

/// All connections of a pool, which wait for rows that another client has locked.
pub(crate) struct Busy {
    locked: Admin,
    waiting: JoinSet<()>,
}

impl Busy {
    /// Call this while no other request is under way.
    pub(crate) async fn keep(bed: &Bed, backend: &MySql, connections: usize) -> Self {
        let mut watcher = bed.admin().await;
        let mut locked = bed.admin().await;
        let names: Vec<_> = (0..connections).map(|number| format!("busy {number}")).collect();
        for name in &names {
            next_token(backend, name).await;
        }
        locked.run("START TRANSACTION").await;
        for name in &names {
            locked.run(locking(bed, name)).await;
        }
        let mut waiting = JoinSet::new();
        for name in &names {
            let mut claim = claim(backend, name);
            waiting.spawn(async move {
                while !matches!(claim.attempt(Wait::No).await, Ok(Attempt::Granted(_))) {}
            });
        }
        let all = u64::try_from(connections).unwrap();
        until("they wait", async || watcher.one::<u64>(bed.waiting()).await == all).await;
        Self { locked, waiting }
    }

    pub(crate) async fn end(mut self) {
        self.locked.run("ROLLBACK").await;
        within(SOON, "the rows", self.waiting.join_all()).await;
    }
}

/// The statement that locks the row of a mutex.
pub(crate) fn locking(bed: &Bed, name: &str) -> String {
    format!("SELECT 1 FROM {} WHERE kind='mutex' AND name='{name}' FOR UPDATE", bed.table("lock"))
}

pub(crate) async fn held(backend: &MySql, names: &[&str]) -> Vec<Box<dyn Claim>> {
    let mut claims = Vec::new();
    for name in names {
        let mut claim = claim(backend, name);
        granted(claim.attempt(Wait::No).await);
        claims.push(claim);
    }
    claims
}

/// A backend with one connection, which waits for a row for as long as it must.
pub(crate) async fn with_one_connection(bed: &Bed, admin: &mut Admin) -> MySql {
    let backend = bed.connect(&format!("pool_size=1&{QUIET}")).await;
    bed.wait_for_rows(admin).await;
    backend
}

/// Releases all of them. Their requests wait for the same connection, so they are sent together.
pub(crate) async fn release_all(
    busy: Busy,
    claims: &mut [Box<dyn Claim>],
) -> Vec<Result<Released>> {
    let mut releases = pin!(join_all(claims.iter_mut().map(|claim| claim.release())));
    assert!(releases.as_mut().now_or_never().is_none());
    busy.end().await;
    within(SOON, "the releases", releases).await
}

/// From now on, the server writes all statements to its log, which is empty.
pub(crate) async fn start_log(admin: &mut Admin) {
    admin.run("SET GLOBAL log_output='TABLE',GLOBAL general_log=1").await;
    admin.run("TRUNCATE mysql.general_log").await;
}

/// The statements of batches in the server's log, in their order.
async fn logged(admin: &mut Admin) -> Vec<String> {
    let log = "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log \
               WHERE user_host LIKE '%lockkit%' AND command_type='Query' ORDER BY event_time";
    let mut sent = admin.all::<String>(log).await;
    sent.retain(|text| text.contains("FORCE INDEX(PRIMARY)"));
    sent
}

/// The number of releases in each batch that the server has got since the log was started.
pub(crate) async fn batches(admin: &mut Admin) -> Vec<usize> {
    let mut sent = logged(admin).await;
    sent.retain(|text| text.starts_with("UPDATE") && text.contains("SET expires_us=1,"));
    sent.iter().map(|update| update.matches("fence BETWEEN").count()).collect()
}

/// The statement that counts the names that are held, without those that keep the pool busy.
pub(crate) fn live(bed: &Bed) -> String {
    format!(
        "SELECT COUNT(*) FROM {} WHERE expires_us>{NOW} AND name NOT LIKE 'busy%'",
        bed.table("lock")
    )
}

/// Catches a statement for each release, and a question after a batch that has freed all.
async fn c7_releases_that_come_together_are_one_statement(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = with_one_connection(&bed, &mut admin).await;
    let there = bed.connect(QUIET).await;
    let names = ["a", "A", "b", "b ", "c", "ä", "🔒", "'"];
    let mut claims = held(&backend, &names).await;
    let busy = Busy::keep(&bed, &backend, 1).await;
    let mut before = Vec::new();
    for what in ["Com_update", "Com_select"] {
        before.push(admin.status(what).await);
    }
    for answer in release_all(busy, &mut claims).await {
        assert_eq!(answer.unwrap(), Released::Freed);
    }
    assert_eq!(admin.status("Com_update").await - before[0], 1);
    assert_eq!(admin.status("Com_select").await - before[1], 0);
    assert_eq!(admin.one::<u64>(live(&bed)).await, 0);
    for name in names {
        next_token(&there, name).await;
    }
    for claim in &mut claims {
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld, "it was freed once");
    }
}

/// Catches a batch with one outcome for all. Catches one that asks each release alone after it has
/// freed some: these would find a lease that has ended. Catches one that frees a row without a look
/// at its owner or its lease.
async fn c7_each_release_of_a_batch_reports_its_own_outcome(flavor: SqlFlavor) {
    use Released::{Freed, NotHeld};
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = with_one_connection(&bed, &mut admin).await;
    let there = bed.connect(QUIET).await;
    let names = ["x", "X", "taken", "evicted", "x ", "🔒", "also live"];
    let mut claims = held(&backend, &names).await;
    let mut elected = claim_in(&backend, Kind::Election, "x", Mode::Exclusive);
    granted(elected.attempt(Wait::No).await);
    claims.push(elected);
    let lock = bed.table("lock");
    let end = format!("expires_us={NOW}-1");
    admin.run(format!("UPDATE {lock} SET {end} WHERE name IN('X','taken','🔒')")).await;
    admin.run(format!("UPDATE {lock} SET {end} WHERE kind='election'")).await;
    admin.run(format!("UPDATE {lock} SET owner='',expires_us=0 WHERE name='evicted'")).await;
    admin.run(format!("DELETE FROM {lock} WHERE name='x '")).await;
    let mut next = held(&there, &["taken"]).await;
    let busy = Busy::keep(&bed, &backend, 1).await;
    start_log(&mut admin).await;
    let before = admin.status("Com_update").await;
    let answers = release_all(busy, &mut claims).await;
    let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [Freed, NotHeld, NotHeld, NotHeld, NotHeld, NotHeld, Freed, NotHeld]);
    // The batch, and a release alone for each that had no lock.
    assert_eq!(admin.status("Com_update").await - before, 7);
    assert_eq!(batches(&mut admin).await, [8]);
    assert_eq!(admin.one::<u64>(live(&bed)).await, 1, "C2: that of the present owner");
    assert!(matches!(next[0].renew(None).await.unwrap(), RenewalOutcome::Alive(_)), "C2");
    assert_eq!(next[0].release().await.unwrap(), Freed);
}

/// Catches a batch that reports a success or a loss without an answer, and one whose callers wait
/// for ever.
async fn c5_a_batch_without_an_answer_is_unknown_to_each_release(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    bed.connect(QUIET).await;
    bed.wait_for_rows(&mut admin).await;
    for is_applied in [false, true] {
        let (backend, proxy) = bed.behind_proxy(&format!("pool_size=1&{QUIET}")).await;
        let mut claims = held(&backend, &["a", "b", "c"]).await;
        let busy = Busy::keep(&bed, &backend, 1).await;
        {
            let mut releases = pin!(join_all(claims.iter_mut().map(|claim| claim.release())));
            assert!(releases.as_mut().now_or_never().is_none());
            proxy.set(|toxics| toxics.up.hold = true);
            busy.end().await;
            let sent = Instant::now();
            unanswered(releases.as_mut(), async || sent.elapsed() > SLACK).await;
            assert_eq!(admin.one::<u64>(live(&bed)).await, 3);
            if is_applied {
                proxy.set(|toxics| (toxics.up.hold, toxics.down.hold) = (false, true));
                let is_over = async || admin.one::<u64>(live(&bed)).await == 0;
                unanswered(releases.as_mut(), is_over).await;
            }
            proxy.reset_all();
            for answer in within(SOON, "the releases", releases).await {
                let error = answer.unwrap_err();
                assert!(error.is_outcome_unknown(), "{error}");
            }
        }
        proxy.heal();
        // If the batch has freed it, the next release finds that out.
        for claim in &mut claims {
            let released = persistently(async || claim.release().await).await;
            assert_eq!(released, Released::Freed, "is_applied: {is_applied}");
        }
        assert_eq!(admin.one::<u64>(live(&bed)).await, 0);
        // The names that kept the pool busy are free for the next round.
        admin.run(format!("UPDATE {} SET expires_us=0", bed.table("lock"))).await;
    }
}

/// Catches a batch that ends with one of its callers.
async fn c6_a_release_that_is_dropped_in_a_batch_frees_its_lock(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = with_one_connection(&bed, &mut admin).await;
    // The first release makes the batch. So each of them is dropped once.
    for dropped in 0..3 {
        let mut claims = held(&backend, &["a", "b", "c"]).await;
        let busy = Busy::keep(&bed, &backend, 1).await;
        start_log(&mut admin).await;
        let mut releases: Vec<_> = claims.iter_mut().map(|claim| claim.release()).collect();
        for release in &mut releases {
            assert!(release.as_mut().now_or_never().is_none());
        }
        drop(releases.remove(dropped));
        busy.end().await;
        for answer in within(SOON, "the others", join_all(releases)).await {
            assert_eq!(answer.unwrap(), Released::Freed);
        }
        assert_eq!(admin.one::<u64>(live(&bed)).await, 0, "the dropped one was sent, too");
        assert_eq!(batches(&mut admin).await, [3]);
        let mut claim = claims.remove(dropped);
        assert_eq!(claim.release().await.unwrap(), Released::Freed, "by the batch");
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld, "it was freed once");
        admin.run(format!("UPDATE {} SET expires_us=0", bed.table("lock"))).await;
    }
}

/// Catches a batch that keeps its connection after all its calls were dropped, and one that is sent
/// nevertheless.
async fn c6_a_batch_that_nobody_waits_for_leaves_nothing(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = with_one_connection(&bed, &mut admin).await;
    let mut claims = held(&backend, &["a", "b"]).await;
    let busy = Busy::keep(&bed, &backend, 1).await;
    start_log(&mut admin).await;
    {
        let mut releases = pin!(join_all(claims.iter_mut().map(|claim| claim.release())));
        assert!(releases.as_mut().now_or_never().is_none());
    }
    busy.end().await;
    next_token(&backend, "other").await;
    assert_eq!(admin.one::<u64>(live(&bed)).await, 2, "they were released without a caller");
    let kept = format!("UPDATE {} SET expires_us=0 WHERE name LIKE 'busy%'", bed.table("lock"));
    admin.run(kept).await;
    // The first two are sent alone now, because their earlier releases have failed.
    claims.extend(held(&backend, &["c", "d"]).await);
    let busy = Busy::keep(&bed, &backend, 1).await;
    for answer in release_all(busy, &mut claims).await {
        assert_eq!(answer.unwrap(), Released::Freed);
    }
    assert_eq!(batches(&mut admin).await, [2]);
    assert_eq!(admin.one::<u64>(live(&bed)).await, 0);
}

/// Catches a batch that finds a row by its owner only. A proxy may deliver the batch again, or
/// late, when the same claim has got the lock again. Also catches one that scans the table.
async fn c4_c5_a_batch_that_arrives_again_frees_no_later_grant(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let backend = with_one_connection(&bed, &mut admin).await;
    let mut claims = held(&backend, &["a", "b", "lapsed"]).await;
    let lapsed = format!("UPDATE {} SET expires_us={NOW}-1 WHERE name='lapsed'", bed.table("lock"));
    admin.run(lapsed).await;
    let busy = Busy::keep(&bed, &backend, 1).await;
    start_log(&mut admin).await;
    let answers = release_all(busy, &mut claims).await;
    admin.run("SET GLOBAL general_log=0").await;
    let freed = answers.iter().filter(|answer| matches!(answer, Ok(Released::Freed)));
    assert_eq!(freed.count(), 2);
    let sent = logged(&mut admin).await;
    let [update, question] = &sent[..] else { panic!("{sent:#?}") };
    assert!(update.starts_with("UPDATE"), "{update}");
    assert!(question.starts_with("SELECT") && question.ends_with("FOR UPDATE"), "{question}");
    let mut tokens = Vec::new();
    for claim in &mut claims {
        tokens.push(granted(claim.attempt(Wait::No).await).token);
    }
    if flavor == SqlFlavor::MySql {
        admin.run("SET explain_format='TRADITIONAL'").await;
    }
    for statement in [update, question] {
        assert_eq!(rows_by_key(&mut admin, statement).await, 1, "{statement}");
    }
    admin.run(update).await;
    assert_eq!(admin.one::<u64>(live(&bed)).await, 3, "C1: a later grant was freed");
    for (claim, token) in claims.iter_mut().zip(tokens) {
        assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        let again = granted(claim.attempt(Wait::No).await).token;
        assert_eq!(again, token, "C4");
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

/// Catches a batch whose releases all wait for the row of one of them. First the server ends the
/// wait after a second, and then the client does so.
async fn c8_a_locked_row_delays_the_others_of_its_batch_for_a_while_only(flavor: SqlFlavor) {
    for (op_timeout, server_waits) in [(OP_TIMEOUT, false), (Duration::from_secs(12), true)] {
        let bed = Bed::steady(flavor);
        let mut admin = bed.admin().await;
        let mut other = bed.admin().await;
        let backend = bed.connect(&format!("pool_size=2&{QUIET}")).await;
        if server_waits {
            bed.wait_for_rows(&mut admin).await;
            // Each of the two connections inserts a row.
            tokio::join!(next_token(&backend, "one"), next_token(&backend, "two"));
        }
        let mut claims = Vec::new();
        for name in ["locked", "a", "b"] {
            let mut spec = spec(name);
            spec.op_timeout = op_timeout;
            let mut claim = backend.claim(spec).unwrap();
            granted(claim.attempt(Wait::No).await);
            claims.push(claim);
        }
        let [locked, rest @ ..] = &mut claims[..] else { panic!("no claims") };
        let busy = Busy::keep(&bed, &backend, 2).await;
        other.run("START TRANSACTION").await;
        other.run(locking(&bed, "locked")).await;
        start_log(&mut admin).await;
        let mut last = locked.release();
        let mut others = pin!(join_all(rest.iter_mut().map(|claim| claim.release())));
        assert!(last.as_mut().now_or_never().is_none());
        assert!(others.as_mut().now_or_never().is_none());
        busy.end().await;
        let answers = tokio::select! {
            biased;
            answers = within(SOON, "the others", others) => answers,
            answer = last.as_mut() => panic!("it was answered before the others: {answer:?}"),
        };
        assert_eq!(batches(&mut admin).await, [3]);
        for answer in answers {
            assert_eq!(answer.unwrap(), Released::Freed);
        }
        other.run("ROLLBACK").await;
        let released = match within(SOON, "the locked one", last).await {
            Ok(released) => released,
            Err(error) => {
                assert!(error.is_temporary() || error.is_outcome_unknown(), "{error}");
                persistently(async || locked.release().await).await
            }
        };
        assert_eq!(released, Released::Freed);
    }
}

/// Catches a batch that frees the locks of other owners, and one that reports a loss to a holder.
async fn c1_c4_locks_that_are_released_in_batches_never_overlap(flavor: SqlFlavor) {
    const NAMES: usize = 8;
    const TASKS: usize = 24;
    const ROUNDS: usize = 6;
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    start_log(&mut admin).await;
    let witnesses: Arc<[Witness; NAMES]> = Arc::default();
    let mut tasks = JoinSet::new();
    for pool_size in [1, 2, 16] {
        let locker = bed.locker(&format!("pool_size={pool_size}&{QUIET}")).await;
        for task in 0..TASKS {
            let witnesses = Arc::clone(&witnesses);
            let locker = locker.clone();
            tasks.spawn(async move {
                for round in 0..ROUNDS {
                    let name = (task + round) % NAMES;
                    let lock = locker.mutex(&name.to_string()).unwrap();
                    let guard = lock.lock().await.unwrap();
                    stay(&guard, &witnesses[name]).await;
                    guard.release().await.unwrap();
                }
            });
        }
    }
    within(SOON * 5, "the crowd", tasks.join_all()).await;
    let grants: usize = witnesses.iter().map(Witness::verify).sum();
    assert_eq!(grants, 3 * TASKS * ROUNDS);
    let batches = batches(&mut admin).await;
    println!("{} batches with {} releases", batches.len(), batches.iter().sum::<usize>());
    assert!(batches.len() > 1, "the test shows nothing");
}
