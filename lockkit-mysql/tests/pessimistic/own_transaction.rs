//! Tests of locks in transactions that belong to the program.

use lockkit_core::{
    ErrorKind, FencingToken, Kind,
    spi::{Backend as _, Released, Wait},
    url::StoreUrl,
};
use lockkit_fixture::claims::given_up;
use lockkit_mysql::{
    Config, MySql,
    mysql_async::{Conn, Opts, Pool, Transaction, TxOpts, prelude::Queryable as _},
};

use crate::support::*;

on_both! {
    c1_a_transaction_of_the_program_and_claims_exclude_each_other,
    c1_transactions_on_a_pool_of_the_program_exclude_each_other,
    c1_a_connection_that_is_killed_before_its_token_is_stored_gets_no_token,
    c3_c9_a_killed_connection_frees_the_lock_and_its_commit_fails,
    c3_c4_a_restart_of_the_server_undoes_the_transaction_and_keeps_its_token,
    c4_a_rollback_of_the_program_takes_no_token_back,
    c4_a_transaction_with_an_old_snapshot_gets_a_larger_token,
    c4_c8_a_transaction_that_waited_behind_others_gets_a_larger_token,
    c6_a_wait_that_is_dropped_is_killed_and_never_gets_the_row,
    c6_a_call_that_is_dropped_after_its_wait_leaves_no_row_and_no_sign,
    c8_a_wait_that_is_too_long_leaves_the_transaction_open,
    c13_a_deadlock_is_told_as_the_end_of_the_transaction,
    c13_transactions_that_can_not_hold_a_lock_are_refused,
    c14_a_lock_of_the_program_is_a_holder_without_a_name_until_its_end,
}

/// A connection of the program.
async fn program(store: &Store) -> Conn {
    Conn::new(Opts::from_url(&store.server.url()).unwrap()).await.unwrap()
}

async fn in_transaction(store: &Store) -> Conn {
    let mut conn = program(store).await;
    conn.query_drop("START TRANSACTION").await.unwrap();
    conn
}

/// A transaction that has the lock `a`, and has written a row that it did not commit.
async fn write_under_lock<'a>(
    store: &Store,
    conn: &'a mut Conn,
) -> (Transaction<'a>, FencingToken) {
    store.admin.run("CREATE TABLE stock (item INT PRIMARY KEY) ENGINE=InnoDB").await;
    let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
    let token = store.mysql.lock_in_transaction(&mut transaction, "a").await.unwrap();
    transaction.query_drop("INSERT INTO stock VALUES (7)").await.unwrap();
    (transaction, token)
}

/// How many statements of programs wait for a row.
async fn waiting(store: &Store) -> u64 {
    let wait = "information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT 1 FROM %FOR UPDATE'";
    store.admin.count(wait).await
}

async fn stored_token(store: &Store) -> u64 {
    store.admin.ask("SELECT fence FROM lockkit_fence WHERE kind='mutex' AND name='a'").await
}

/// Catches a lock in other tables or of another row than that of claims.
async fn c1_a_transaction_of_the_program_and_claims_exclude_each_other(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut conn = program(&store).await;
    // The program works in another database.
    conn.query_drop("USE information_schema").await.unwrap();
    let mut claim = store.claim("a");
    let before = granted(claim.attempt(Wait::No).await).token;
    let mut transaction = conn.start_transaction(TxOpts::default()).await.unwrap();
    let mysql = &store.mysql;
    assert_eq!(mysql.try_lock_in_transaction(&mut transaction, "a").await.unwrap(), None);
    assert!(mysql.try_lock_in_transaction(&mut transaction, "b").await.unwrap().is_some());
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    let own = mysql.try_lock_in_transaction(&mut transaction, "a").await.unwrap().unwrap();
    assert!(own > before);
    busy(claim.attempt(Wait::No).await);
    transaction.commit().await.unwrap();
    assert!(granted(claim.attempt(Wait::No).await).token > own);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// Catches a lock that ends before its transaction.
async fn c1_transactions_on_a_pool_of_the_program_exclude_each_other(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let pool = Pool::new(Opts::from_url(&store.server.url()).unwrap());
    let mut first = pool.start_transaction(TxOpts::default()).await.unwrap();
    let mut second = pool.start_transaction(TxOpts::default()).await.unwrap();
    let token = store.mysql.lock_in_transaction(&mut first, "a").await.unwrap();
    first.query_drop("SELECT 1").await.unwrap();
    let tried = store.mysql.try_lock_in_transaction(&mut second, "a").await.unwrap();
    assert_eq!(tried, None);
    first.rollback().await.unwrap();
    assert!(store.mysql.lock_in_transaction(&mut second, "a").await.unwrap() > token);
    second.commit().await.unwrap();
    pool.disconnect().await.unwrap();
}

/// Catches a token for a transaction that lost its row during the call.
async fn c1_a_connection_that_is_killed_before_its_token_is_stored_gets_no_token(
    flavor: SqlFlavor,
) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    let before = granted(claim.attempt(Wait::No).await).token;
    given_up(claim.release()).await;
    let mut conn = in_transaction(&store).await;
    let thread = u64::from(conn.id());
    // Nothing can raise the token, so the call waits while it has the row.
    store.admin.run("START TRANSACTION;SELECT fence FROM lockkit_fence FOR UPDATE").await;
    let raising = "information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE `lockkit_fence`%'";
    let killing = async {
        until("the token waits", async || store.admin.count(raising).await == 1).await;
        store.admin.kill(thread).await;
        store.admin.run("ROLLBACK").await;
    };
    let locking = store.mysql.lock_in_transaction(&mut conn, "a");
    let (locked, ()) = tokio::join!(locking, killing);
    let error = locked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(stored_token(&store).await, before.get(), "a call without a row raised it");
    assert!(granted(claim.attempt(Wait::No).await).token > before);
    given_up(claim.release()).await;
}

/// Catches a row that stays locked after its connection has ended. Also catches a program that
/// never learns of the loss, because its commit succeeds.
async fn c3_c9_a_killed_connection_frees_the_lock_and_its_commit_fails(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut conn = program(&store).await;
    let (transaction, token) = write_under_lock(&store, &mut conn).await;
    let thread = u64::from(transaction.id());
    let mut next = store.claim("a");
    let killing = async {
        until("the next one waits", async || store.admin.waiting().await == 1).await;
        store.admin.kill(thread).await;
    };
    let (attempt, ()) = tokio::join!(next.attempt(Wait::Block(SOON)), killing);
    assert!(granted(attempt).token > token);
    assert!(transaction.commit().await.is_err(), "the program does not learn of the loss");
    // This insert fails if the row was committed, and waits while its transaction is open.
    store.admin.run("INSERT INTO stock VALUES (7)").await;
    given_up(next.release()).await;
}

/// Catches a token that is not stored before the call returns, so that it is given twice. Also
/// catches a commit that succeeds on another connection than that of the lock.
async fn c3_c4_a_restart_of_the_server_undoes_the_transaction_and_keeps_its_token(
    flavor: SqlFlavor,
) {
    let mut store = Store::start(flavor).await;
    let mut conn = program(&store).await;
    let (transaction, token) = write_under_lock(&store, &mut conn).await;
    store.server.restart().unwrap();
    store.admin = Admin::to(&store.server).await;
    assert!(transaction.commit().await.is_err(), "the program does not learn of the loss");
    assert_eq!(stored_token(&store).await, token.get());
    // This backend has no connection from before the restart.
    let next = store.another().await;
    let mut conn = in_transaction(&store).await;
    let own = next.lock_in_transaction(&mut conn, "a").await.unwrap();
    assert!(own > token);
    // This insert fails if the row was committed.
    conn.query_drop("INSERT INTO stock VALUES (7);COMMIT").await.unwrap();
    assert_eq!(store.admin.count("stock").await, 1);
    let mut claim = next.claim(spec_for("a", TTL)).unwrap();
    assert!(granted(claim.attempt(Wait::No).await).token > own);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// Catches a token that is raised inside the program's transaction. It would rise by the server's
/// clock alone after a rollback, and fall if that clock is corrected.
async fn c4_a_rollback_of_the_program_takes_no_token_back(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut last = 0;
    for breaks in [false, true] {
        let mut conn = in_transaction(&store).await;
        let token = store.mysql.lock_in_transaction(&mut conn, "a").await.unwrap().get();
        assert!(token > last);
        assert_eq!(stored_token(&store).await, token, "other clients see it before the end");
        if breaks {
            conn.disconnect().await.unwrap();
        } else {
            conn.query_drop("ROLLBACK").await.unwrap();
        }
        assert_eq!(stored_token(&store).await, token);
        last = token;
    }
    let mut conn = in_transaction(&store).await;
    let token = store.mysql.lock_in_transaction(&mut conn, "a").await.unwrap();
    assert!(token.get() > last);
}

/// Catches a token that is read in the program's snapshot. Also catches a read of the token that
/// keeps its row locked, so that nothing can raise the token.
async fn c4_a_transaction_with_an_old_snapshot_gets_a_larger_token(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    for isolation in ["REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED"] {
        let mut claim = store.claim("a");
        granted(claim.attempt(Wait::No).await);
        given_up(claim.release()).await;
        let mut conn = program(&store).await;
        let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}");
        conn.query_drop(set).await.unwrap();
        conn.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
        let later = granted(claim.attempt(Wait::No).await).token;
        given_up(claim.release()).await;
        let own = store.mysql.lock_in_transaction(&mut conn, "a").await.unwrap();
        assert!(own > later, "{isolation}");
        conn.query_drop("COMMIT").await.unwrap();
    }
}

/// Catches a raise from the token that was read before the wait.
async fn c4_c8_a_transaction_that_waited_behind_others_gets_a_larger_token(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let other = store.another().await;
    let mut holder = store.claim("a");
    let mut second = other.claim(spec_for("a", TTL)).unwrap();
    granted(holder.attempt(Wait::No).await);
    let mut conn = in_transaction(&store).await;
    let claims = async {
        let freeing = async {
            until("the claim waits", async || store.admin.waiting().await == 1).await;
            until("the program waits", async || waiting(&store).await == 1).await;
            given_up(holder.release()).await;
        };
        let (attempt, ()) = tokio::join!(second.attempt(Wait::Block(SOON)), freeing);
        let token = granted(attempt).token;
        given_up(second.release()).await;
        token
    };
    let own = async {
        until("the claim waits", async || store.admin.waiting().await == 1).await;
        store.mysql.lock_in_transaction(&mut conn, "a").await.unwrap()
    };
    let (before, own) = tokio::join!(claims, own);
    assert!(own > before);
    conn.query_drop("ROLLBACK").await.unwrap();
    assert!(granted(holder.attempt(Wait::No).await).token > own);
}

/// Catches a statement that waits on after its call was dropped, and then has the row without an
/// owner.
async fn c6_a_wait_that_is_dropped_is_killed_and_never_gets_the_row(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let mut conn = in_transaction(&store).await;
    // Without a kill, the statement would wait for longer than the test.
    conn.query_drop("SET SESSION innodb_lock_wait_timeout=600").await.unwrap();
    tokio::select! {
        answer = store.mysql.lock_in_transaction(&mut conn, "a") => panic!("{answer:?}"),
        () = until("it waits", async || waiting(&store).await == 1) => {}
    }
    // The program still has its connection.
    until("it is killed", async || waiting(&store).await == 0).await;
    given_up(holder.release()).await;
    granted(holder.attempt(Wait::No).await);
    drop(conn);
    given_up(holder.release()).await;
}

/// The program still has its connection. Catches a call that leaves the locked row and the sign to
/// that connection.
async fn c6_a_call_that_is_dropped_after_its_wait_leaves_no_row_and_no_sign(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    given_up(claim.release()).await;
    let mut conn = in_transaction(&store).await;
    let thread: Option<u64> = conn.query_first("SELECT CONNECTION_ID()").await.unwrap();
    // Nothing can raise the token, so the call waits while it has the row.
    store.admin.run("START TRANSACTION;SELECT fence FROM lockkit_fence FOR UPDATE").await;
    let raising = "information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE `lockkit_fence`%'";
    tokio::select! {
        answer = store.mysql.lock_in_transaction(&mut conn, "a") => panic!("{answer:?}"),
        () = until("the token waits", async || store.admin.count(raising).await == 1) => {}
    }
    store.admin.until_ended(thread.unwrap()).await;
    store.admin.run("ROLLBACK").await;
    assert!(store.mysql.admin().unwrap().names(Kind::Mutex, "").await.unwrap().is_empty());
    granted(claim.attempt(Wait::No).await);
    drop(conn);
    given_up(claim.release()).await;
}

/// Catches a busy lock that costs the program its transaction.
async fn c8_a_wait_that_is_too_long_leaves_the_transaction_open(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    store.admin.run("CREATE TABLE stock (item INT PRIMARY KEY) ENGINE=InnoDB").await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let mut conn = in_transaction(&store).await;
    conn.query_drop("SET SESSION innodb_lock_wait_timeout=1").await.unwrap();
    conn.query_drop("INSERT INTO stock VALUES (7)").await.unwrap();
    let error = store.mysql.lock_in_transaction(&mut conn, "a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert!(error.to_string().contains("innodb_lock_wait_timeout"), "{error}");
    assert_eq!(store.mysql.try_lock_in_transaction(&mut conn, "a").await.unwrap(), None);
    assert_eq!(store.admin.count("stock").await, 0, "nothing was committed");
    conn.query_drop("COMMIT").await.unwrap();
    assert_eq!(store.admin.count("stock").await, 1);
    given_up(holder.release()).await;
}

/// Two transactions lock two rows in opposite order. Catches an error that lets the program
/// continue in a transaction that the server has rolled back.
async fn c13_a_deadlock_is_told_as_the_end_of_the_transaction(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let mut one = in_transaction(&store).await;
    let mut two = in_transaction(&store).await;
    store.mysql.lock_in_transaction(&mut one, "a").await.unwrap();
    store.mysql.lock_in_transaction(&mut two, "b").await.unwrap();
    let first = async {
        let locked = store.mysql.lock_in_transaction(&mut one, "b").await;
        one.query_drop("ROLLBACK").await.unwrap();
        locked
    };
    let second = async {
        until("the other one waits", async || waiting(&store).await == 1).await;
        let locked = store.mysql.lock_in_transaction(&mut two, "a").await;
        two.query_drop("ROLLBACK").await.unwrap();
        locked
    };
    let (first, second) = tokio::join!(first, second);
    let ((Ok(_), Err(error)) | (Err(error), Ok(_))) = (&first, &second) else {
        panic!("{first:?} {second:?}")
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("rolled the program's transaction back"), "{error}");
}

/// Each of these would hold no lock, or would break a promise.
async fn c13_transactions_that_can_not_hold_a_lock_are_refused(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let elsewhere = SqlServer::start(flavor).unwrap();
    let url = format!("{}?table_prefix=rows&connect_timeout=20s", store.server.url());
    let optimistic = Config::from_url(StoreUrl::parse(&url).unwrap()).unwrap();
    let optimistic = MySql::connect(optimistic).await.unwrap();
    let strict = connect(&store.server, "&table_prefix=strict&strict_lease=true").await;
    let mysql = &store.mysql;
    let (here, there) = (store.server.url(), elsewhere.url());
    for (mysql, url, begin, kind, words) in [
        (mysql, &here, "DO 1", ErrorKind::InvalidOption, "begin a transaction first"),
        (mysql, &here, "START TRANSACTION READ ONLY", ErrorKind::InvalidOption, "READ ONLY"),
        (mysql, &there, "START TRANSACTION", ErrorKind::InvalidOption, "another server"),
        (&optimistic, &here, "START TRANSACTION", ErrorKind::Unsupported, "strategy=pessimistic"),
        (&strict, &here, "START TRANSACTION", ErrorKind::Unsupported, "strict_lease=true"),
    ] {
        let mut conn = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
        conn.query_drop(begin).await.unwrap();
        let error = mysql.lock_in_transaction(&mut conn, "a").await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let mut conn = in_transaction(&store).await;
    let error = mysql.lock_in_transaction(&mut conn, "").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    // None of them has raised a token.
    assert_eq!(store.admin.count("lockkit_fence").await, 0);
    // With autocommit off, each statement begins a transaction.
    conn.query_drop("ROLLBACK;SET autocommit=0").await.unwrap();
    mysql.lock_in_transaction(&mut conn, "a").await.unwrap();
    busy(store.claim("a").attempt(Wait::No).await);
}

/// Catches a sign that stays on the program's connection. A list would name the lock after its end.
async fn c14_a_lock_of_the_program_is_a_holder_without_a_name_until_its_end(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let names = async || store.mysql.admin().unwrap().names(Kind::Mutex, "").await.unwrap();
    let mut conn = in_transaction(&store).await;
    let token = store.mysql.lock_in_transaction(&mut conn, "a").await.unwrap();
    let seen = store.mysql.inspect(&mutex("a")).await.unwrap();
    let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
    assert_eq!((holder.owner, holder.token), (None, None));
    assert_eq!(store.mysql.force_release(&mutex("a"), token).await.unwrap(), Released::NotHeld);
    busy(store.claim("a").attempt(Wait::No).await);
    assert!(names().await.is_empty());
    conn.query_drop("COMMIT").await.unwrap();
    assert!(store.mysql.inspect(&mutex("a")).await.unwrap().holders.is_empty());
    assert!(names().await.is_empty());
    drop(conn);
}
