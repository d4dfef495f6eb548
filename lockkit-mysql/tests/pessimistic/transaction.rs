//! Tests of the user's statements in the lock's transaction.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lockkit_core::{
    ErrorKind, LockGuard, LockOptions,
    spi::Released,
    spi::{Attempt, Claim, LossReason, Wait},
};
use lockkit_mysql::{LockTransaction, mysql_async::prelude::Queryable as _};

use crate::support::*;

on_both! {
    statements_are_committed_with_the_release,
    statements_of_a_dropped_guard_are_undone,
    statements_of_a_lost_lock_are_undone,
    a_commit_of_the_user_is_noticed,
    an_error_of_a_statement_undoes_that_statement_only,
    c6_a_run_that_is_dropped_loses_the_lock_and_its_statement_is_killed,
    c6_a_statement_does_not_outlive_its_dropped_guard,
    statements_at_a_shutdown_are_undone,
    a_run_works_in_a_task_of_its_own,
    c7_a_statement_that_is_given_up_inside_a_run_loses_the_lock,
    c10_short_runs_without_a_pause_do_not_keep_renewals_away,
    what_a_run_sets_in_the_session_hurts_no_renewal_and_no_release,
    c9_a_holder_that_hangs_in_a_large_answer_is_freed,
    c9_a_holder_that_has_set_the_timeout_of_its_connection_is_freed,
    c7_an_undone_release_is_never_reported_as_freed,
}

async fn begin(store: &Store, guard: &LockGuard) -> Arc<LockTransaction> {
    store
        .admin
        .run("CREATE TABLE IF NOT EXISTS stock (item INT PRIMARY KEY, pieces INT) ENGINE=InnoDB")
        .await;
    let transaction = LockTransaction::of(guard).unwrap();
    sell(&transaction, 1).await;
    transaction
}

async fn sell(transaction: &LockTransaction, item: u32) {
    let sold = transaction
        .run(async |conn| conn.query_drop(format!("INSERT INTO stock VALUES ({item}, 7)")).await)
        .await;
    sold.unwrap().unwrap();
}

async fn statements_are_committed_with_the_release(flavor: SqlFlavor) {
    for strict in ["", "&strict_lease=true"] {
        let store = Store::start_with(flavor, strict).await;
        let locker = store.locker().await;
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        let transaction = begin(&store, &guard).await;
        sell(&transaction, 2).await;
        assert_eq!(store.admin.count("stock").await, 0, "not committed yet");
        guard.release().await.unwrap();
        assert_eq!(store.admin.count("stock").await, 2);
        let late = transaction.run(async |_| ()).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::Lost);
        locker.mutex("a").unwrap().try_lock().await.unwrap().unwrap().release().await.unwrap();
        locker.shutdown().await.unwrap();
    }
}

async fn statements_of_a_dropped_guard_are_undone(flavor: SqlFlavor) {
    for strict in ["", "&strict_lease=true"] {
        let store = Store::start_with(flavor, strict).await;
        let locker = store.locker().await;
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        let _transaction = begin(&store, &guard).await;
        drop(guard);
        // The next holder does not wait for a lease that was given up.
        let guard = locker.mutex("a").unwrap().lock_timeout(SOON).await.unwrap();
        assert_eq!(store.admin.count("stock").await, 0);
        guard.release().await.unwrap();
        locker.shutdown().await.unwrap();
    }
}

async fn statements_of_a_lost_lock_are_undone(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let transaction = begin(&store, &guard).await;
    let forced = locker.force_release(guard.name(), guard.fencing_token()).await.unwrap();
    assert_eq!(forced, Released::Freed);
    assert_eq!(guard.lost().wait().await, LossReason::Evicted);
    assert_eq!(transaction.run(async |_| ()).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(store.admin.count("stock").await, 0);
    locker.shutdown().await.unwrap();
}

async fn a_commit_of_the_user_is_noticed(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    for end in
        ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "BEGIN", "CREATE TABLE IF NOT EXISTS t (n INT)"]
    {
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        let transaction = begin(&store, &guard).await;
        let ended = transaction.run(async |conn| conn.query_drop(end).await).await.unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::Lost);
        assert!(ended.to_string().contains("ended its transaction"), "{end}: {ended}");
        assert_eq!(guard.lost().wait().await, LossReason::SessionLost);
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost, "{end}");
        store.admin.run("DELETE FROM stock").await;
    }
    locker.shutdown().await.unwrap();
}

async fn an_error_of_a_statement_undoes_that_statement_only(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let transaction = begin(&store, &guard).await;
    let twice =
        transaction.run(async |conn| conn.query_drop("INSERT INTO stock VALUES (1, 7)").await);
    twice.await.unwrap().unwrap_err();
    sell(&transaction, 2).await;
    guard.release().await.unwrap();
    assert_eq!(store.admin.count("stock").await, 2);
    locker.shutdown().await.unwrap();
}

async fn c6_a_run_that_is_dropped_loses_the_lock_and_its_statement_is_killed(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let transaction = begin(&store, &guard).await;
    let long = transaction.run(async |conn| conn.query_drop("DO SLEEP(100)").await);
    tokio::time::timeout(Duration::from_millis(200), long).await.unwrap_err();
    let asleep = "information_schema.PROCESSLIST WHERE INFO LIKE 'DO SLEEP%'";
    until("the statement is killed", || async { store.admin.count(asleep).await == 0 }).await;
    assert_eq!(guard.lost().wait().await, LossReason::SessionLost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(store.admin.count("stock").await, 0);
    locker.shutdown().await.unwrap();
}

async fn c6_a_statement_does_not_outlive_its_dropped_guard(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let transaction = begin(&store, &guard).await;
    let long = tokio::spawn(async move {
        transaction.run(async |conn| conn.query_drop("DO SLEEP(100)").await).await.map(drop)
    });
    let asleep = "information_schema.PROCESSLIST WHERE INFO LIKE 'DO SLEEP%'";
    until("the statement runs", || async { store.admin.count(asleep).await == 1 }).await;
    drop(guard);
    let ended = tokio::time::timeout(SOON, long).await.unwrap().unwrap().unwrap_err();
    assert_eq!(ended.kind(), ErrorKind::Lost);
    let next = locker.mutex("a").unwrap().lock_timeout(SOON).await.unwrap();
    assert_eq!(store.admin.count("stock").await, 0);
    next.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

async fn statements_at_a_shutdown_are_undone(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker
        .mutex("a")
        .unwrap()
        .with_options(LockOptions::default().with_ttl(SHORT))
        .unwrap()
        .lock()
        .await
        .unwrap();
    let _transaction = begin(&store, &guard).await;
    // After one ttl, the shutdown ends what is still held, though the guard was not released.
    let _ = locker.shutdown().await;
    assert!(!guard.is_held());
    let mut next = store.claim("a");
    granted(next.attempt(Wait::Block(SOON)).await);
    assert_eq!(store.admin.count("stock").await, 0);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(store.admin.count("stock").await, 0);
}

async fn a_run_works_in_a_task_of_its_own(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let transaction = begin(&store, &guard).await;
    let pieces = tokio::spawn(async move {
        let item = 1;
        let question = format!("SELECT pieces FROM stock WHERE item={item}");
        let read = transaction.run(async |conn| conn.query_first::<u32, _>(&question).await).await;
        read.unwrap().unwrap()
    });
    assert_eq!(pieces.await.unwrap(), Some(7));
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

/// The driver would give the answer of the dropped statement to the next one.
async fn c7_a_statement_that_is_given_up_inside_a_run_loses_the_lock(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let transaction = begin(&store, &guard).await;
    let given_up = transaction
        .run(async |conn| {
            tokio::time::timeout(Duration::from_millis(100), conn.query_drop("DO SLEEP(100)"))
                .await
                .is_err()
        })
        .await
        .unwrap_err();
    assert_eq!(given_up.kind(), ErrorKind::Lost);
    let asleep = "information_schema.PROCESSLIST WHERE INFO LIKE 'DO SLEEP%'";
    until("the statement is killed", || async { store.admin.count(asleep).await == 0 }).await;
    let next = transaction.run(async |conn| conn.query_first::<u64, _>("SELECT 222").await).await;
    assert_eq!(next.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.lost().wait().await, LossReason::SessionLost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(store.admin.count("stock").await, 0);
    locker.shutdown().await.unwrap();
}

async fn c10_short_runs_without_a_pause_do_not_keep_renewals_away(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let locker = store.locker().await;
    // Without a renewal, the lease ends long before the work does.
    let lease = SHORT * 3 / 2;
    let options = LockOptions::new().with_ttl(lease).with_op_timeout(lease / 2);
    let guard = locker.mutex("a").unwrap().with_options(options).unwrap().lock().await.unwrap();
    let transaction = begin(&store, &guard).await;
    let started = Instant::now();
    let working = async || {
        while started.elapsed() < lease * 5 / 4 {
            let run = transaction.run(async |conn| conn.query_drop("DO SLEEP(0.02)").await).await;
            run.unwrap_or_else(|error| panic!("after {:?}: {error}", started.elapsed())).unwrap();
        }
    };
    tokio::join!(working(), working());
    guard.release().await.unwrap();
    assert_eq!(store.admin.count("stock").await, 1);
    locker.shutdown().await.unwrap();
}

async fn what_a_run_sets_in_the_session_hurts_no_renewal_and_no_release(flavor: SqlFlavor) {
    for strict in ["", "&strict_lease=true"] {
        let store = Store::start_with(flavor, strict).await;
        let locker = store.locker().await;
        for set in ["USE information_schema", "SET SESSION sql_select_limit=0", "SET autocommit=0"]
        {
            let guard = locker.mutex("a").unwrap().lock().await.unwrap();
            let transaction = begin(&store, &guard).await;
            transaction.run(async |conn| conn.query_drop(set).await).await.unwrap().unwrap();
            guard.renew().await.unwrap_or_else(|error| panic!("{set}: {error}"));
            guard.release().await.unwrap_or_else(|error| panic!("{set}: {error}"));
            assert_eq!(store.admin.count("stock").await, 1);
            store.admin.run("DELETE FROM stock").await;
        }
        locker.shutdown().await.unwrap();
    }
}

fn transaction_of(claim: &dyn Claim) -> Arc<LockTransaction> {
    let attachment: Arc<dyn std::any::Any + Send + Sync> = claim.attachment().unwrap();
    attachment.downcast().unwrap()
}

/// Waits until another claim has the lock.
async fn take_over(store: &Store) {
    let mut next = store.claim("a");
    let waiting = async {
        while !matches!(next.attempt(Wait::Block(SOON)).await.unwrap(), Attempt::Granted(_)) {}
    };
    tokio::time::timeout(SOON, waiting).await.expect("nobody takes over");
}

async fn c9_a_holder_that_hangs_in_a_large_answer_is_freed(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim_for("a", SHORT);
    granted(holder.attempt(Wait::No).await);
    let transaction = transaction_of(&*holder);
    let mut reading = Box::pin(transaction.run(async |conn| {
        let all = "information_schema.COLLATIONS";
        let large = format!("SELECT REPEAT('x',1000000) FROM {all} AS a, {all} AS b");
        let _answer = conn.query_iter(large).await.unwrap();
        std::future::pending::<()>().await;
    }));
    // Long enough to fill all buffers. From then on, the process hangs.
    tokio::time::timeout(Duration::from_millis(500), &mut reading).await.unwrap_err();
    take_over(&store).await;
}

async fn c9_a_holder_that_has_set_the_timeout_of_its_connection_is_freed(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim_for("a", SHORT);
    granted(holder.attempt(Wait::No).await);
    let transaction = transaction_of(&*holder);
    let forever = "SET SESSION wait_timeout=28800";
    transaction.run(async |conn| conn.query_drop(forever).await).await.unwrap().unwrap();
    take_over(&store).await;
}

/// Another client locks the row of the token for as long as one attempt of the release may take.
/// Catches a release that knows that all was undone, is cut off while it tidies up, and then counts
/// as one that was done.
async fn c7_an_undone_release_is_never_reported_as_freed(flavor: SqlFlavor) {
    for strict in ["", "&strict_lease=true"] {
        let store = Store::start_with(flavor, strict).await;
        let locker = store.locker().await;
        let options = LockOptions::new()
            .with_ttl(Duration::from_secs(20))
            .with_op_timeout(Duration::from_millis(600));
        let guard = locker.mutex("a").unwrap().with_options(options).unwrap().lock().await.unwrap();
        let _transaction = begin(&store, &guard).await;
        let other = Admin::to(&store.server).await;
        other.run("START TRANSACTION").await;
        other.run("SELECT * FROM lockkit_fence WHERE name='a' FOR UPDATE").await;
        store.admin.kill(store.admin.thread("a").await).await;
        let releasing = tokio::spawn(guard.release());
        tokio::time::sleep(Duration::from_secs(2)).await;
        other.run("ROLLBACK").await;
        assert!(releasing.await.unwrap().is_err(), "{strict}");
        assert_eq!(store.admin.count("stock").await, 0);
    }
}
