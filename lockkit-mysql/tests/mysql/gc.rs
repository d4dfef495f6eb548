//! Tests that the rows of unused names are removed, and that nothing is forgotten with them.

use lockkit_core::{
    ErrorKind, Kind, Renewal,
    spi::{Mode, RenewalOutcome, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;

use crate::support::*;

on_both!(
    c4_tokens_rise_over_garbage_collection,
    c4_garbage_collection_removes_old_rows_only,
    c4_a_reader_keeps_the_row_of_its_name,
    c4_garbage_collection_does_not_wait_for_rows_that_are_locked,
    c4_a_retention_under_a_minute_is_refused,
    names_go_many_at_a_time,
    names_go_without_the_rows_of_holders_of_other_names,
    old_rows_go_by_themselves,
);

/// So long that the background task does not come first.
const RETENTION: &str = "retention=3000h";
/// Makes a row as old as if it had been unused for two retentions.
const AGED: &str = "touched_us=touched_us-21600000000000,fence=fence-21600000000000";

async fn c4_tokens_rise_over_garbage_collection(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect(RETENTION).await;
    let mut admin = bed.admin().await;
    let before = next_token(&backend, "a").await;
    assert_eq!(backend.collect_garbage().await.unwrap(), 0);
    admin.run(format!("UPDATE {} SET {AGED}", bed.table("lock"))).await;
    assert_eq!(backend.collect_garbage().await.unwrap(), 1);
    assert_eq!(admin.one::<u64>(format!("SELECT COUNT(*) FROM {}", bed.table("lock"))).await, 0);
    assert!(next_token(&backend, "a").await > before);
}

/// Catches each condition that is missing, and a loop over pages that skips or stops.
async fn c4_garbage_collection_removes_old_rows_only(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect(RETENTION).await;
    let mut admin = bed.admin().await;
    let table = bed.table("lock");
    for name in ["young", "touched", "ahead"] {
        next_token(&backend, name).await;
    }
    for old in 0..250 {
        next_token(&backend, &format!("old {old}")).await;
    }
    let mut live = claim(&backend, "live");
    granted(live.attempt(Wait::No).await);
    admin.run(format!("UPDATE {table} SET {AGED} WHERE name<>'young'")).await;
    admin.run(format!("UPDATE {table} SET touched_us={NOW} WHERE name='touched'")).await;
    // As if the clock had been an hour ahead, and was corrected.
    admin.run(format!("UPDATE {table} SET fence={NOW}+3600000000 WHERE name='ahead'")).await;
    let ahead: u64 = admin.one(format!("SELECT fence FROM {table} WHERE name='ahead'")).await;
    assert_eq!(backend.collect_garbage().await.unwrap(), 250);
    let kept: Vec<String> =
        admin.all(&format!("SELECT CONVERT(name USING utf8mb4) FROM {table} ORDER BY 1")).await;
    assert_eq!(kept, ["ahead", "live", "touched", "young"]);
    assert!(next_token(&backend, "ahead").await.get() > ahead);
    // The fence of this hold was changed, so it is no longer the one that was granted.
    assert!(matches!(live.renew(None).await.unwrap(), RenewalOutcome::Lost(_)));
}

async fn c4_a_reader_keeps_the_row_of_its_name(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect(RETENTION).await;
    let mut admin = bed.admin().await;
    for (kind, mode) in [(Kind::RwLock, Mode::Shared), (Kind::RwLock, Mode::Exclusive)] {
        let mut holder = claim_in(&backend, kind, "a", mode);
        let token = granted(holder.attempt(Wait::No).await).token;
        admin.run(format!("UPDATE {} SET {AGED}", bed.table("lock"))).await;
        assert_eq!(backend.collect_garbage().await.unwrap(), 0, "{mode:?}");
        assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)), "{mode:?}");
        given_up(holder.release()).await;
        admin.run(format!("UPDATE {} SET {AGED}", bed.table("lock"))).await;
        assert_eq!(backend.collect_garbage().await.unwrap(), 1, "{mode:?}");
        let mut next = claim_in(&backend, kind, "a", mode);
        assert!(granted(next.attempt(Wait::No).await).token > token);
        given_up(next.release()).await;
    }
}

/// A row on which another client is at work is in use.
async fn c4_garbage_collection_does_not_wait_for_rows_that_are_locked(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(RETENTION).await;
    let mut admin = bed.admin().await;
    let mut other = bed.admin().await;
    for name in ["a", "b", "c"] {
        next_token(&backend, name).await;
    }
    admin.run(format!("UPDATE {} SET {AGED}", bed.table("lock"))).await;
    other.run("START TRANSACTION").await;
    other
        .run(format!(
            "SELECT * FROM {} WHERE kind='mutex' AND name='b' FOR UPDATE",
            bed.table("lock")
        ))
        .await;
    let waits = admin.status("Innodb_row_lock_waits").await;
    // The other rows are removed nevertheless.
    assert_eq!(within(SOON, "cleaning up", backend.collect_garbage()).await.unwrap(), 2);
    assert_eq!(admin.status("Innodb_row_lock_waits").await, waits);
    other.run("ROLLBACK").await;
    assert_eq!(backend.collect_garbage().await.unwrap(), 1);
    // The connection that was refused the row can be used again.
    let locker = locker(backend);
    let options = locker.defaults().clone().with_renewal(Renewal::Manual);
    let lock = locker.mutex("b").unwrap().with_options(options).unwrap();
    lock.try_lock().await.unwrap().unwrap().release().await.unwrap();
}

async fn c4_a_retention_under_a_minute_is_refused(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    for retention in ["0s", "1s", "59s", "59999ms"] {
        let error = refused(&bed.url(&format!("retention={retention}"))).await;
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(error.to_string().contains("retention"), "{error}");
    }
}

/// Catches a request for each name, and a scan that meets a locked row in use. Catches a name that
/// is taken for the same name of another kind.
async fn names_go_many_at_a_time(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let table = bed.table("lock");
    let mut other = bed.admin().await;
    // In a small table the server prefers a scan.
    for names in [10, 1_000] {
        let columns = "kind,name,fence,touched_us";
        for (kind, touched) in [("mutex", "1"), ("semaphore", "1"), ("rwlock", NOW)] {
            let rows: Vec<_> =
                (0..names / 2).map(|n| format!("('{kind}','n{n}',1,{touched})")).collect();
            admin.run(format!("INSERT INTO {table}({columns}) VALUES {}", rows.join(","))).await;
        }
        other.run("START TRANSACTION").await;
        other
            .run(format!("SELECT * FROM {table} WHERE kind='rwlock' AND name='n3' FOR UPDATE"))
            .await;
        let before = admin.status("Questions").await;
        assert_eq!(backend.collect_garbage().await.unwrap(), names);
        let statements = admin.status("Questions").await - before;
        println!("{statements} statements for {names} names");
        assert!(statements <= 6 + names / 20, "{statements} statements for {names} names");
        other.run("ROLLBACK").await;
        let kinds = format!("SELECT DISTINCT CONVERT(kind USING utf8mb4) FROM {table}");
        assert_eq!(admin.all::<String>(&kinds).await, ["rwlock"]);
        admin.run(format!("DELETE FROM {table}")).await;
    }
}

/// Catches a scan of the holders that waits for a locked one.
async fn names_go_without_the_rows_of_holders_of_other_names(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut other = bed.admin().await;
    let lock = bed.table("lock");
    let holder = bed.table("holder");
    for (names, holders) in [(10, 2), (10, 1_000), (1_000, 2), (1_000, 3_000)] {
        let rows: Vec<_> = (0..names).map(|n| format!("('semaphore','n{n}',1,1)")).collect();
        admin
            .run(format!(
                "INSERT INTO {lock}(kind,name,fence,touched_us) VALUES {}",
                rows.join(",")
            ))
            .await;
        let rows: Vec<_> = (0..holders)
            .map(|n| format!("('semaphore','n{}m','o{n}','x',1,1,{NOW}+9000000000,1)", n / 3))
            .collect();
        let columns = "kind,name,owner,mode,fence,permits,expires_us,acquired_us";
        admin.run(format!("INSERT INTO {holder}({columns}) VALUES {}", rows.join(","))).await;
        other.run("START TRANSACTION").await;
        other
            .run(format!("SELECT * FROM {holder} WHERE kind='semaphore' AND name='n0m' FOR UPDATE"))
            .await;
        let waits = admin.status("Innodb_row_lock_waits").await;
        let before = admin.status("Questions").await;
        assert_eq!(within(SOON, "cleaning up", backend.collect_garbage()).await.unwrap(), names);
        let statements = admin.status("Questions").await - before;
        let waits = admin.status("Innodb_row_lock_waits").await - waits;
        assert!(
            waits == 0 && statements <= 6 + names / 20,
            "{names} names, {holders} holders: {statements} statements, {waits} waits"
        );
        other.run("ROLLBACK").await;
        admin.run(format!("DELETE FROM {holder}")).await;
    }
}

async fn old_rows_go_by_themselves(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("retention=60s").await;
    let mut admin = bed.admin().await;
    let table = bed.table("lock");
    for name in ["old", "young"] {
        next_token(&backend, name).await;
    }
    admin.run(format!("UPDATE {table} SET {AGED} WHERE name='old'")).await;
    let names = format!("SELECT CONVERT(name USING utf8mb4) FROM {table}");
    until("the old row is gone", async || admin.all::<String>(&names).await == ["young"]).await;
}
