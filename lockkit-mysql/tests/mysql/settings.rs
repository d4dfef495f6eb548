//! Tests of servers whose settings do not suit our statements, and of rows that a wrong clock
//! wrote.

use std::time::{Duration, SystemTime};

use lockkit_core::{
    Kind, LockName, LockOptions, Renewal,
    spi::{Admin as _, Backend as _, Mode, Note, Noted, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;
use lockkit_mysql::{LockTransaction, mysql_async::prelude::Queryable as _};

use crate::support::*;

on_both!(
    c1_c3_the_settings_of_the_server_do_not_matter,
    c3_the_time_zone_of_the_server_does_not_matter,
    c4_tokens_rise_over_a_clock_that_was_corrected,
);

/// A user without special rights gets all of these settings.
async fn c1_c3_the_settings_of_the_server_do_not_matter(flavor: SqlFlavor) {
    let init = "--init-connect=SET autocommit=0,completion_type=2,sql_mode='ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT',\
                sql_safe_updates=1,sql_select_limit=1,time_zone='-11:00',timestamp=1,innodb_lock_wait_timeout=1000,\
                lock_wait_timeout=1000,transaction_isolation='SERIALIZABLE',transaction_read_only=1";
    // The older name of these variables.
    let init = if flavor == SqlFlavor::MariaDb {
        init.replace("transaction_", "tx_")
    } else {
        init.to_owned()
    };
    for args in [
        vec![
            "--autocommit=0",
            "--transaction-isolation=SERIALIZABLE",
            "--completion-type=2",
            "--default-time-zone=+05:45",
        ],
        vec![
            "--sql-mode=",
            "--transaction-read-only=1",
            "--transaction-isolation=REPEATABLE-READ",
            "--completion-type=1",
        ],
        vec![&init],
    ] {
        println!("{args:?}");
        works(&Bed::own(flavor, &args)).await;
    }
}

/// Checks that backends grant, see each other's grants, renew, and end leases when they should.
async fn works(bed: &Bed) {
    let here = bed.connect("pool_size=2").await;
    let there = bed.connect("pool_size=2").await;
    for (kind, mode) in [(Kind::Mutex, Mode::Exclusive), (Kind::RwLock, Mode::Exclusive)] {
        for _ in 0..3 {
            let mut first = claim_in(&here, kind, "a", mode);
            let mut second = claim_in(&there, kind, "a", mode);
            let token = granted(first.attempt(Wait::No).await).token;
            // A snapshot would show an old row.
            busy(second.attempt(Wait::No).await);
            assert!(matches!(first.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
            assert_eq!(first.release().await.unwrap(), Released::Freed);
            assert!(granted(second.attempt(Wait::No).await).token > token);
            assert!(matches!(first.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
            assert_eq!(first.release().await.unwrap(), Released::NotHeld);
            let seen = here.inspect(&LockName::new(kind, "a").unwrap()).await.unwrap();
            let remaining = seen.holders[0].remaining.unwrap();
            assert!(remaining > TTL / 2 && remaining <= TTL, "{remaining:?}");
            assert_eq!(second.release().await.unwrap(), Released::Freed);
        }
    }
    let mut holder = claim(&here, "c");
    granted(holder.attempt(Wait::No).await);
    for note in [Note::new(1, "'\"\\\0\u{1f512} ".to_owned()), Note::new(u64::MAX, String::new())] {
        assert_eq!(holder.write_note(&note).await.unwrap(), Noted::Written);
        assert_eq!(there.note(&mutex("c")).await.unwrap(), note);
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    let before = SystemTime::now();
    let told = here.time().await.unwrap();
    let after = SystemTime::now() + Duration::from_millis(1);
    assert!(
        (before - Duration::from_millis(1)..after).contains(&told),
        "{before:?}, then {told:?}"
    );
    // All rows are read, not only the first.
    let mut readers = [
        claim_in(&here, Kind::RwLock, "b", Mode::Shared),
        claim_in(&there, Kind::RwLock, "b", Mode::Shared),
    ];
    for reader in &mut readers {
        granted(reader.attempt(Wait::No).await);
    }
    let seen = here.inspect(&LockName::new(Kind::RwLock, "b").unwrap()).await.unwrap();
    assert_eq!(seen.holders.len(), 2);
    for reader in &mut readers {
        assert_eq!(reader.release().await.unwrap(), Released::Freed);
    }
    // Other clients can't see changes that were not committed, and an open transaction would hold
    // rows.
    bed.assert_clean().await;
}

async fn c3_the_time_zone_of_the_server_does_not_matter(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &["--default-time-zone=-12:00"]);
    let mut admin = bed.admin().await;
    let old = bed.connect("pool_size=1").await;
    let mut held = claim(&old, "a");
    let token = granted(held.attempt(Wait::No).await).token;
    // The setting is for the connections to come.
    admin.run("SET GLOBAL time_zone='+13:00'").await;
    let new = bed.connect("pool_size=1").await;
    busy(claim(&new, "a").attempt(Wait::No).await);
    let seen = new.inspect(&mutex("a")).await.unwrap();
    let remaining = seen.holders[0].remaining.unwrap();
    assert!(remaining > TTL / 2 && remaining <= TTL, "{remaining:?}");
    assert!(matches!(held.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(held.release().await.unwrap(), Released::Freed);
    assert!(next_token(&new, "a").await > token);
}

/// Tests rows that were written by a clock that was ahead by a day.
async fn c4_tokens_rise_over_a_clock_that_was_corrected(flavor: SqlFlavor) {
    const DAY: &str = "86400000000";
    let bed = Bed::shared(flavor);
    let backend = bed.connect("").await;
    let mut admin = bed.admin().await;
    for (kind, mode) in [
        (Kind::Mutex, Mode::Exclusive),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::RwLock, Mode::Shared),
    ] {
        let mut claim = claim_in(&backend, kind, "a", mode);
        granted(claim.attempt(Wait::No).await);
        given_up(claim.release()).await;
        admin
            .run(format!(
                "UPDATE {} SET fence=fence+{DAY},touched_us=touched_us+{DAY}",
                bed.table("lock")
            ))
            .await;
        let mut last: u64 =
            admin.one(format!("SELECT fence FROM {} WHERE kind='{kind}'", bed.table("lock"))).await;
        for _ in 0..3 {
            let mut claim = claim_in(&backend, kind, "a", mode);
            let token = granted(claim.attempt(Wait::No).await).token.get();
            assert!(token > last, "{mode:?}: {token} after {last}");
            last = token;
            assert!(matches!(claim.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
            given_up(claim.release()).await;
        }
    }
    // A holder from that time holds the lock in the future, and an operator can see and end that.
    let mut stuck = claim(&backend, "b");
    let token = granted(stuck.attempt(Wait::No).await).token;
    let table = bed.table("lock");
    admin
        .run(format!(
            "UPDATE {table} SET expires_us=expires_us+{DAY},fence=fence+{DAY} WHERE name='b'"
        ))
        .await;
    busy(claim(&backend, "b").attempt(Wait::No).await);
    let seen = backend.inspect(&mutex("b")).await.unwrap();
    assert!(seen.holders[0].remaining.unwrap() > Duration::from_secs(86_000));
    let ahead = seen.holders[0].token.unwrap();
    assert!(ahead > token);
    assert_eq!(backend.force_release(&mutex("b"), ahead).await.unwrap(), Released::Freed);
    assert!(next_token(&backend, "b").await > ahead);
}

/// MySQL ends no idle transaction. MariaDB has three timeouts: for any transaction, for one that
/// has changed nothing, and for one that has.
#[tokio::test]
async fn c3_the_idle_transaction_timeouts_of_mariadb_do_not_matter() {
    const IDLE: Duration = Duration::from_millis(2_500);
    let args = [
        "--idle-transaction-timeout=1",
        "--idle-readonly-transaction-timeout=1",
        "--idle-write-transaction-timeout=1",
    ];
    let bed = Bed::own(SqlFlavor::MariaDb, &args);
    let locker = bed.locker("strategy=pessimistic").await;
    let options = LockOptions::new().with_ttl(TTL).with_renewal(Renewal::Manual);
    let lock = async |name| {
        locker.mutex(name).unwrap().with_options(options.clone()).unwrap().lock().await
    };
    let idle = lock("idle").await.unwrap();
    let used = lock("used").await.unwrap();
    let mut admin = bed.admin().await;
    admin.run(format!("CREATE TABLE lockkit.{}_counter (n INT) ENGINE=InnoDB", bed.prefix)).await;
    let insert = format!("INSERT INTO {}_counter VALUES (1)", bed.prefix);
    let transaction = LockTransaction::of(&used).unwrap();
    transaction.run(async |conn| conn.query_drop(insert).await).await.unwrap().unwrap();
    tokio::time::sleep(IDLE).await;
    for guard in [idle, used] {
        let name = guard.name().clone();
        guard
            .release()
            .await
            .unwrap_or_else(|error| panic!("C3: {name} was freed while it was held: {error}"));
    }
}
