//! Lockers on a pool that belongs to the program.

use std::{collections::BTreeSet, time::Duration};

use lockkit_core::{
    Error, ErrorKind,
    spi::{Backend as _, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_mysql::{
    Config, MySql,
    mysql_async::{
        Conn, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, prelude::Queryable as _,
    },
};
use tokio::{runtime::Builder, task::spawn_blocking, time::timeout};

use crate::support::*;

on_both!(
    c1_c4_a_pool_of_the_program_leads_to_the_same_locks,
    a_closed_locker_gives_its_connections_back_as_they_were,
    c8_c10_a_pool_that_the_program_uses_up_delays_no_request,
    c6_a_request_that_is_dropped_midway_harms_no_connection_of_the_pool,
    c13_a_pool_with_which_promises_would_break_is_refused,
    c13_a_disconnected_pool_is_a_closed_locker,
    c13_a_pool_of_the_program_serves_one_runtime,
);

/// lockkit takes six connections at most, and one is left for the program.
const LOCKKITS: usize = 4;
const MOST: usize = 7;

fn options(bed: &Bed) -> OptsBuilder {
    with_bounds(
        OptsBuilder::from_opts(Opts::from_url(&bed.server.url()).unwrap()).prefer_socket(false),
        PoolOpts::default(),
        MOST,
    )
}

/// The pool keeps all of its connections: it closes idle ones above the lower bound.
fn with_bounds(options: OptsBuilder, pool: PoolOpts, most: usize) -> OptsBuilder {
    options.pool_opts(pool.with_constraints(PoolConstraints::new(most, most).unwrap()))
}

fn config(bed: &Bed, pool: &Pool) -> Config {
    Config::from_pool(pool.clone(), "lockkit")
        .with_table_prefix(&bed.prefix)
        .and_then(|config| config.with_pool_size(LOCKKITS))
        .and_then(|config| config.with_connect_timeout(Duration::from_secs(20)))
        .unwrap()
}

async fn connect_by(bed: &Bed, pool: &Pool) -> MySql {
    persistently(async || MySql::connect(config(bed, pool)).await).await
}

/// The number of a connection, and what lockkit changes in its sessions.
async fn session(conn: &mut Conn) -> (u64, (u64, String, String)) {
    let question = "SELECT CONNECTION_ID(),@@innodb_lock_wait_timeout,@@sql_mode,DATABASE()";
    let (id, wait, mode, database) = conn.query_first(question).await.unwrap().unwrap();
    (id, (wait, mode, database))
}

/// Takes connections out of the pool, as a busy program does.
async fn take(pool: &Pool, count: usize) -> Vec<Conn> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(within(SOON, "a connection", pool.get_conn()).await.unwrap());
    }
    all
}

/// Catches a locker on a pool that uses tables of another database.
async fn c1_c4_a_pool_of_the_program_leads_to_the_same_locks(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let pool = Pool::new(options(&bed));
    // The database of a connection stays when it comes back.
    let mut used = pool.get_conn().await.unwrap();
    used.query_drop("USE information_schema").await.unwrap();
    drop(used);
    let own = connect_by(&bed, &pool).await;
    let other = bed.connect("").await;
    let mut a = claim(&own, "a");
    let mut b = claim(&other, "a");
    let first = granted(a.attempt(Wait::No).await).token;
    assert!(!busy(b.attempt(Wait::No).await).0);
    assert_eq!(a.release().await.unwrap(), Released::Freed);
    let second = granted(b.attempt(Wait::No).await).token;
    assert!(second > first);
    busy(a.attempt(Wait::No).await);
    assert_eq!(b.release().await.unwrap(), Released::Freed);
    assert!(next_token(&own, "a").await > second);
    own.close().await.unwrap();
    within(SOON, "the end of the pool", pool.disconnect()).await.unwrap();
}

/// Catches a locker that closes or keeps connections of the program, and one that gives them back
/// with its own settings.
async fn a_closed_locker_gives_its_connections_back_as_they_were(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let mut admin = bed.admin().await;
    let pool = Pool::new(options(&bed));
    let (_, usual) = session(&mut pool.get_conn().await.unwrap()).await;
    let locker = locker(connect_by(&bed, &pool).await);
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    guard.release().await.unwrap();
    let users = "SELECT ID FROM information_schema.PROCESSLIST WHERE USER='lockkit'";
    let before: BTreeSet<u64> = admin.all(users).await.into_iter().collect();
    assert!(!before.is_empty());
    locker.shutdown().await.unwrap();
    let mut after = BTreeSet::new();
    let mut all = take(&pool, MOST).await;
    for conn in &mut all {
        let (id, settings) = session(conn).await;
        assert_eq!(settings, usual);
        after.insert(id);
    }
    assert!(before.is_subset(&after), "{before:?} {after:?}");
    drop(all);
    within(SOON, "the end of the pool", pool.disconnect()).await.unwrap();
}

/// Tasks that have all other connections may wait for a lock. Catches a locker that takes a
/// connection only when it needs one, and so waits for those tasks.
async fn c8_c10_a_pool_that_the_program_uses_up_delays_no_request(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let pool = Pool::new(options(&bed));
    let own = connect_by(&bed, &pool).await;
    let mut all = Vec::new();
    while let Ok(conn) = timeout(SLACK * 3, pool.get_conn()).await {
        all.push(conn.unwrap());
    }
    let mut a = claim(&own, "a");
    let mut b = claim(&own, "b");
    let both = async { tokio::join!(a.attempt(Wait::No), b.attempt(Wait::No)) };
    let (first, second) = within(SOON, "two grants at the same time", both).await;
    granted(first);
    granted(second);
    let outcome = within(SOON, "a renewal", a.renew(None)).await.unwrap();
    assert!(matches!(outcome, RenewalOutcome::Alive(_)), "{outcome:?}");
    assert_eq!(within(SOON, "a release", a.release()).await.unwrap(), Released::Freed);
    assert_eq!(within(SOON, "a release", b.release()).await.unwrap(), Released::Freed);
}

/// Catches a connection that goes back to the pool while an answer is still to come. The program
/// would take that for the answer to its own question.
async fn c6_a_request_that_is_dropped_midway_harms_no_connection_of_the_pool(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let pool = Pool::new(options(&bed));
    let own = connect_by(&bed, &pool).await;
    bed.wait_for_rows(&mut admin).await;
    next_token(&own, "a").await;
    admin.run("START TRANSACTION").await;
    let row = format!("FROM {} WHERE kind='mutex' AND name='a'", bed.table("lock"));
    admin.run(format!("SELECT 1 {row} FOR UPDATE")).await;
    let waiting = bed.waiting();
    for round in 0..3 {
        // The connection inserts a row.
        next_token(&own, &format!("before {round}")).await;
        let mut claim = claim(&own, "a");
        let attempt = claim.attempt(Wait::No);
        unanswered(attempt, async || admin.one::<u64>(&waiting).await == 1).await;
        until("it is killed", async || admin.one::<u64>(&waiting).await == 0).await;
    }
    admin.run("ROLLBACK").await;
    next_token(&own, "a").await;
    own.close().await.unwrap();
    for (number, mut conn) in (1_000_u64..).zip(take(&pool, MOST).await) {
        let answer: Option<u64> = conn.query_first(format!("SELECT {number}")).await.unwrap();
        assert_eq!(answer, Some(number));
    }
}

async fn refused_by(bed: &Bed, options: OptsBuilder) -> Error {
    let pool = Pool::new(options);
    let mut refusal = None;
    until("there is an answer", async || {
        match MySql::connect(config(bed, &pool)).await {
            Ok(_) => panic!("it was not refused"),
            Err(error) if error.is_temporary() => {}
            Err(error) => refusal = Some(error),
        }
        refusal.is_some()
    })
    .await;
    refusal.unwrap()
}

/// Each of these options would break a promise without a sign.
async fn c13_a_pool_with_which_promises_would_break_is_refused(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let unreset = PoolOpts::default().with_reset_connection(false);
    for (options, word) in [
        (options(&bed).client_found_rows(true), "client_found_rows"),
        (options(&bed).db_name(Some("information_schema")), "keeps its database"),
        (options(&bed).stmt_cache_size(5), "stmt_cache_size"),
        (with_bounds(options(&bed), unreset, MOST), "with_reset_connection"),
        (with_bounds(options(&bed), PoolOpts::default(), MOST - 1), "at most 6"),
    ] {
        let error = refused_by(&bed, options).await;
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    let pool = Pool::new(options(&bed));
    let config = config(&bed, &pool);
    let shown = format!("{config:?}");
    let secret = Opts::from_url(&bed.server.url()).unwrap().pass().unwrap().to_owned();
    assert!(!shown.contains(&secret), "{shown}");
    let config = config.with_credentials("other", "hunter2");
    let error = MySql::connect(config).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("user of its own"), "{error}");
}

/// Catches an error that waiting callers take for temporary, so that they wait for ever.
async fn c13_a_disconnected_pool_is_a_closed_locker(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let pool = Pool::new(options(&bed));
    drop(pool.get_conn().await.unwrap());
    within(SOON, "the end of the pool", pool.clone().disconnect()).await.unwrap();
    let error = MySql::connect(config(&bed, &pool)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(!error.is_temporary() && error.to_string().contains("disconnected"), "{error}");
}

/// Catches a locker that uses a socket of a runtime that may be blocked, or may have ended.
async fn c13_a_pool_of_the_program_serves_one_runtime(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let pool = Pool::new(options(&bed));
    let own = connect_by(&bed, &pool).await;
    let (own, refused) = spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let refused = runtime.block_on(async { claim(&own, "a").attempt(Wait::No).await });
        (own, refused)
    })
    .await
    .unwrap();
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("for each runtime"), "{error}");
    next_token(&own, "a").await;
}
