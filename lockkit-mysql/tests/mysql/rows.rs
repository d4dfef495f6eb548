//! Tests with row locks of other clients, in tables so small that a scan seems cheaper than an
//! index.

use std::{num::NonZeroU32, time::Duration};

use lockkit_core::{
    ErrorKind, Kind, LockName, LockOptions, Renewal,
    spi::{Attempt, Backend as _, Mode, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;
use lockkit_mysql::mysql_async::Row;
use tokio::{task::JoinSet, time::timeout};

use crate::support::*;

on_both!(
    c8_a_locked_row_holds_up_no_other_name,
    every_statement_finds_its_rows_by_the_primary_key,
    c10_a_locked_row_holds_up_no_other_renewal,
    c10_a_crowd_before_a_locked_row_holds_up_no_renewal,
    c1_a_row_that_is_taken_for_ever_is_taken,
    c8_a_pending_alter_is_no_hang,
    c8_a_lost_race_between_primaries_is_no_error,
    c3_c10_a_clock_that_went_back_promises_no_more_than_was_asked,
);

const ONE: NonZeroU32 = NonZeroU32::MIN;

fn modes() -> [(Kind, Mode); 4] {
    [
        (Kind::Mutex, Mode::Exclusive),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
        (Kind::Semaphore, Mode::Permits { count: ONE, limit: ONE }),
    ]
}

/// Catches a statement that scans, and gap locks.
async fn c8_a_locked_row_holds_up_no_other_name(flavor: SqlFlavor) {
    for (kind, mode) in modes() {
        let bed = Bed::shared(flavor);
        let backend = bed.connect("pool_size=1").await;
        let mut admin = bed.admin().await;
        bed.wait_for_rows(&mut admin).await;
        let mut held = claim_in(&backend, kind, "locked", mode);
        granted(held.attempt(Wait::No).await);
        // As other lockers do. At REPEATABLE READ, this transaction would lock gaps as well.
        admin.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
        admin.run("START TRANSACTION").await;
        for table in ["lock", "holder"] {
            let row = format!(
                "SELECT * FROM {} WHERE kind='{kind}' AND name='locked' FOR UPDATE",
                bed.table(table)
            );
            admin.run(row).await;
        }
        for name in ["free", "a", "z"] {
            let used = async {
                let mut free = claim_in(&backend, kind, name, mode);
                granted(free.attempt(Wait::No).await);
                assert!(matches!(free.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
                assert_eq!(backend.inspect(&in_kind(kind, name)).await.unwrap().holders.len(), 1);
                busy(claim_in(&backend, kind, name, against(mode)).attempt(Wait::No).await);
                assert_eq!(free.release().await.unwrap(), Released::Freed);
                granted(claim_in(&backend, kind, name, mode).attempt(Wait::No).await);
            };
            within(SOON, &format!("{name} as {mode:?}"), used).await;
        }
        admin.run("ROLLBACK").await;
        assert_eq!(held.release().await.unwrap(), Released::Freed);
    }
}

/// The plans of the statements that the server really received.
async fn every_statement_finds_its_rows_by_the_primary_key(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect("").await;
    let mut admin = bed.admin().await;
    let mut held = Vec::new();
    for (kind, mode) in
        modes().into_iter().filter(|(_, mode)| *mode != Mode::Exclusive).chain([modes()[0]])
    {
        for name in ["a", "b"] {
            let mut claim = claim_in(&backend, kind, name, mode);
            granted(claim.attempt(Wait::No).await);
            held.push((kind, name, mode, claim));
        }
    }
    admin.run("SET GLOBAL log_output='TABLE'").await;
    admin.run("SET GLOBAL general_log=1").await;
    for (kind, name, mode, claim) in &mut held {
        busy(claim_in(&backend, *kind, name, against(*mode)).attempt(Wait::No).await);
        claim.renew(None).await.unwrap();
        // A second renewal right after the first has nothing to gain, and asks for each row.
        claim.renew(None).await.unwrap();
        let seen = backend.inspect(&in_kind(*kind, name)).await.unwrap();
        let token = seen.holders[0].token.unwrap();
        let forced = backend.force_release(&in_kind(*kind, name), token).await.unwrap();
        assert_eq!(forced, Released::Freed);
        granted(claim.attempt(Wait::No).await);
        given_up(claim.release()).await;
        granted(claim.attempt(Wait::No).await);
    }
    admin.run("SET GLOBAL general_log=0").await;
    let log = "SELECT DISTINCT CONVERT(argument USING utf8mb4) FROM mysql.general_log \
               WHERE user_host LIKE '%lockkit%' AND command_type IN ('Query','Execute')";
    if flavor == SqlFlavor::MySql {
        admin.run("SET explain_format='TRADITIONAL'").await;
    }
    let mut seen = 0;
    let mut by_key = 0;
    for statement in admin.all::<String>(log).await {
        let statement = without_end(&statement);
        // A script is logged as a whole, too.
        for statement in statement.split(';').filter(|statement| statement.contains(&bed.prefix)) {
            if statement.trim_start().starts_with("INSERT") {
                continue;
            }
            seen += 1;
            by_key += rows_by_key(&mut admin, statement).await;
        }
    }
    assert!(seen >= 12, "only {seen} statements were seen: the test shows nothing");
    assert!(
        by_key >= seen / 2,
        "only {by_key} of {seen} statements look for a row: the test shows nothing"
    );
}

/// Checks the plan of a statement. Returns how many tables it reads by the primary key.
pub(crate) async fn rows_by_key(admin: &mut Admin, statement: &str) -> usize {
    let plan: Vec<Row> = admin.all(&format!("EXPLAIN {statement}")).await;
    let mut by_key = 0;
    for mut row in plan {
        let kind: Option<String> = row.take("type").unwrap();
        let key: Option<String> = row.take("key").unwrap();
        let extra: Option<String> = row.take("Extra").unwrap();
        let extra = extra.unwrap_or_default();
        // The server reads constant tables by the key while it makes the plan.
        let nothing = ["no matching row", "Impossible", "No tables used", "not found"];
        let is_empty = kind.is_none() && nothing.iter().any(|text| extra.contains(text));
        assert!(
            is_empty || key.as_deref() == Some("PRIMARY"),
            "{statement}: {kind:?} {key:?} {extra}"
        );
        by_key += usize::from(!is_empty);
        assert!(kind.as_deref() != Some("index"), "{statement}");
    }
    by_key
}

/// The statement with another not-after time, because a time that has passed leaves nothing to look
/// for.
fn without_end(statement: &str) -> String {
    const NOT_AFTER: &str = "UTC_TIMESTAMP(6))<=";
    let mut parts = statement.split(NOT_AFTER);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_digit());
        let time = if rest.len() < part.len() { "4611686018427387904" } else { "" };
        format!("{text}{NOT_AFTER}{time}{rest}")
    })
}

/// Renewals that are due together are one statement, and another client has locked one of its rows.
async fn c10_a_locked_row_holds_up_no_other_renewal(flavor: SqlFlavor) {
    // In the second case, a request is given up before the server gives up waiting for the row.
    // That takes less time than a stall, and a stall beside the row would end a lease.
    tokio::join!(
        one_row_is_locked(Bed::steady(flavor), SHORT * 2, SHORT * 2 / 3),
        one_row_is_locked(Bed::steady(flavor), SHORT * 2, SHORT / 12)
    );
}

async fn one_row_is_locked(bed: Bed, ttl: Duration, op_timeout: Duration) {
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let options = LockOptions::new().with_ttl(ttl).with_op_timeout(op_timeout);
    let locker = with_ttl(backend, ttl).with_defaults(options).unwrap();
    let mut guards = Vec::new();
    for number in 0..10 {
        let mutex = locker.mutex(&format!("{number}")).unwrap();
        let guard = within(SOON, "a lock", mutex.lock()).await.unwrap();
        guards.push(guard);
    }
    admin.run("START TRANSACTION").await;
    admin
        .run(format!(
            "SELECT * FROM {} WHERE name='5' AND kind='mutex' FOR UPDATE",
            bed.table("lock")
        ))
        .await;
    let lost = guards[5].lost();
    within(SOON, "noticing a lease that could not be renewed", lost.wait()).await;
    tokio::time::sleep(ttl / 2).await;
    for (number, guard) in guards.iter().enumerate() {
        assert_eq!(guard.is_held(), number != 5, "{number}");
    }
    admin.run("ROLLBACK").await;
    for (number, guard) in guards.into_iter().enumerate().filter(|(number, _)| *number != 5) {
        let released = guard.release().await;
        let is_lost = released.is_err_and(|error| error.kind() == ErrorKind::Lost);
        assert!(!is_lost, "{number}");
    }
}

/// Claims whose rows other clients have locked may take every connection of the pool, one after the
/// other.
async fn c10_a_crowd_before_a_locked_row_holds_up_no_renewal(flavor: SqlFlavor) {
    let bed = Bed::steady(flavor);
    let backend = bed.connect(&format!("pool_size=1&{QUIET}")).await;
    let mut admin = bed.admin().await;
    // Only one waiter of each name asks, so there are many names.
    let names: Vec<_> = (0..20).map(|number| format!("locked {number}")).collect();
    for name in &names {
        next_token(&backend, name).await;
    }
    // More patient than the holder, so that they never leave the line of the pool all at once.
    let claims: Vec<_> = names.iter().map(|name| claim(&backend, name)).collect();
    let locker = with_ttl(backend, SHORT * 2);
    let guard = locker.mutex("held").unwrap().lock().await.unwrap();
    admin.run("START TRANSACTION").await;
    for name in &names {
        let row =
            format!("FROM {} WHERE kind='mutex' AND name='{name}' FOR UPDATE", bed.table("lock"));
        admin.run(format!("SELECT * {row}")).await;
    }
    let mut crowd = JoinSet::new();
    for mut claim in claims {
        crowd.spawn(async move {
            while !matches!(claim.attempt(Wait::No).await, Ok(Attempt::Granted(_))) {}
        });
    }
    let lost = guard.lost();
    assert!(
        timeout(SHORT * 7 / 3, lost.wait()).await.is_err(),
        "the lease was not renewed in time"
    );
    assert!(guard.is_held());
    crowd.shutdown().await;
    admin.run("ROLLBACK").await;
    guard.release().await.unwrap();
}

/// No lease is that long. But a row with such an end is not free either.
async fn c1_a_row_that_is_taken_for_ever_is_taken(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut admin = bed.admin().await;
    for (kind, table) in [(Kind::Mutex, "lock"), (Kind::RwLock, "holder")] {
        let mut held = claim_in(&backend, kind, "a", Mode::Exclusive);
        granted(held.attempt(Wait::No).await);
        for end in ["18446744073709551615", "9223372036854775808", "9223372036854775807"] {
            admin.run(format!("UPDATE {} SET expires_us={end}", bed.table(table))).await;
            busy(claim_in(&backend, kind, "a", Mode::Exclusive).attempt(Wait::No).await);
        }
        assert_eq!(held.release().await.unwrap(), Released::Freed);
    }
}

/// An ALTER that waits for a reader makes all later statements wait for the ALTER.
async fn c8_a_pending_alter_is_no_hang(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let locker = bed.locker("").await;
    let mut reader = bed.admin().await;
    let mut admin = bed.admin().await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    reader.run("START TRANSACTION").await;
    reader.run(format!("SELECT * FROM {} LIMIT 1", bed.table("lock"))).await;
    let alter = format!("ALTER TABLE {} ADD COLUMN more INT", bed.table("lock"));
    let table = bed.prefix.clone();
    let altering = tokio::spawn(async move { admin.run(alter).await });
    let mut watcher = bed.admin().await;
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'ALTER%{table}%' AND STATE LIKE '%metadata%'"
    );
    until("the ALTER waits", async || watcher.one::<u64>(&waits).await == 1).await;
    let b = locker.mutex("b").unwrap();
    // The server lets a statement wait for three seconds. Without that bound, it would wait for the
    // ALTER for as long as the reader stays.
    assert!(within(SOON, "a bounded wait", b.lock_timeout(SLACK)).await.is_err());
    let answer = within(SOON, "a try", b.try_lock()).await;
    assert!(answer.is_err() || answer.unwrap().is_none());
    reader.run("ROLLBACK").await;
    within(SOON, "the ALTER", altering).await.unwrap();
    // The new column changes nothing.
    drop(within(SOON, "the next lock", b.lock()).await.unwrap());
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

/// In a group with several primaries, a commit can lose against that of another primary.
async fn c8_a_lost_race_between_primaries_is_no_error(flavor: SqlFlavor) {
    const LOST: u16 = 3101;
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    // A rollback does not undo a count in a table of this engine.
    admin.run("CREATE TABLE lockkit.races (left_over INT) ENGINE=MyISAM").await;
    admin.run("INSERT INTO lockkit.races VALUES (0)").await;
    for table in ["lock", "holder"] {
        let trigger = format!(
            "CREATE TRIGGER lockkit.lost_{table} BEFORE INSERT ON lockkit.{} FOR EACH ROW \
             IF (SELECT left_over FROM lockkit.races)>0 THEN UPDATE lockkit.races SET left_over=left_over-1; \
             SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO={LOST}; END IF",
            bed.table(table)
        );
        admin.run(trigger).await;
    }
    for (kind, mode) in modes() {
        admin.run("UPDATE lockkit.races SET left_over=2").await;
        let mut claim = claim_in(&backend, kind, "a", mode);
        granted(claim.attempt(Wait::No).await);
        assert_eq!(
            admin.one::<i32>("SELECT left_over FROM lockkit.races").await,
            0,
            "nothing was lost"
        );
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

fn in_kind(kind: Kind, name: &str) -> LockName {
    LockName::new(kind, name).unwrap()
}

/// The mode that a holder keeps away.
fn against(held: Mode) -> Mode {
    if let Mode::Permits { .. } = held { held } else { Mode::Exclusive }
}

/// Catches a renewal that promises all that is left by the server's clock, and one that then asks
/// for as much again.
async fn c3_c10_a_clock_that_went_back_promises_no_more_than_was_asked(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let locker = bed.locker("").await;
    let mut admin = bed.admin().await;
    let options = LockOptions::new().with_ttl(TTL).with_renewal(Renewal::Manual);
    let mutex = locker.mutex("a").unwrap().with_options(options.clone()).unwrap();
    let readers = locker.rw_lock("a").unwrap().with_options(options).unwrap();
    let guards =
        [mutex.lock().await.unwrap(), readers.read().await.unwrap(), readers.read().await.unwrap()];
    for table in ["lock", "holder"] {
        let back = "20*24*3600*1000000";
        admin.run(format!("UPDATE {} SET expires_us=expires_us+{back}", bed.table(table))).await;
    }
    for _ in 0..3 {
        for guard in &guards {
            guard.renew().await.unwrap();
            assert!(guard.remaining() <= TTL, "C3: {:?} of {TTL:?}", guard.remaining());
        }
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}
