//! Tests of the note beside a lock, which has rows of its own, and of the server's clock.

use std::time::{Duration, SystemTime};

use lockkit_core::{
    ErrorKind,
    spi::{Admin as _, Note, Noted, Wait},
};
use lockkit_fixture::SqlFlavor;
use lockkit_fixture::claims::given_up;

use crate::support::*;

on_both!(
    c2_a_note_waits_for_a_grant_that_is_being_changed,
    c2_a_holder_writes_no_note_after_the_end_of_its_lease,
    c4_garbage_collection_leaves_notes_alone,
    c5_revisions_are_exact_up_to_the_last,
    c13_a_demoted_primary_reports_neither_a_note_nor_the_time,
    c13_the_errors_for_a_missing_table_and_a_missing_right_name_a_remedy,
    c14_tables_of_a_version_without_notes_get_a_note_table,
);

fn note(revision: u64, text: &str) -> Note {
    Note::new(revision, text.to_owned())
}

/// Catches a grant that is read without a lock on its row.
async fn c2_a_note_waits_for_a_grant_that_is_being_changed(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut other = bed.admin().await;
    let mut holder = claim(&backend, "a");
    granted(holder.attempt(Wait::No).await);
    let one = note(1, "one");
    let writes = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO {}%'",
        bed.table("note")
    );
    for (changed, expected) in
        [("label='x'", Noted::Written), ("owner='x',fence=fence+1", Noted::NotHeld)]
    {
        admin.run("START TRANSACTION").await;
        admin.run(format!("UPDATE {} SET {changed}", bed.table("lock"))).await;
        let (noted, ()) = tokio::join!(holder.write_note(&one), async {
            until("the note waits", async || other.one::<u64>(&writes).await > 0).await;
            admin.run("COMMIT").await;
        });
        assert_eq!(noted.unwrap(), expected, "{changed}");
    }
}

async fn c2_a_holder_writes_no_note_after_the_end_of_its_lease(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut holder = claim(&backend, "a");
    granted(holder.attempt(Wait::No).await);
    admin.run(format!("UPDATE {} SET expires_us={NOW}", bed.table("lock"))).await;
    assert_eq!(holder.write_note(&note(1, "late")).await.unwrap(), Noted::NotHeld);
    admin
        .run(format!("UPDATE {} SET expires_us={NOW}+10000000,fence=fence+1", bed.table("lock")))
        .await;
    assert_eq!(holder.write_note(&note(1, "late")).await.unwrap(), Noted::NotHeld, "another grant");
    assert_eq!(backend.note(&mutex("a")).await.unwrap(), Note::default());
}

async fn c4_garbage_collection_leaves_notes_alone(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect("retention=3000h").await;
    let mut admin = bed.admin().await;
    let mut holder = claim(&backend, "a");
    granted(holder.attempt(Wait::No).await);
    assert_eq!(holder.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    given_up(holder.release()).await;
    let aged = "touched_us=1,fence=1";
    admin.run(format!("UPDATE {} SET {aged}", bed.table("lock"))).await;
    assert_eq!(backend.collect_garbage().await.unwrap(), 1);
    assert_eq!(backend.note(&mutex("a")).await.unwrap(), note(1, "one"));
    granted(holder.attempt(Wait::No).await);
    assert_eq!(holder.write_note(&note(1, "other")).await.unwrap(), Noted::Outdated);
    assert_eq!(holder.write_note(&note(2, "two")).await.unwrap(), Noted::Written);
    given_up(holder.release()).await;
}

async fn c5_revisions_are_exact_up_to_the_last(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let backend = bed.connect(QUIET).await;
    let mut holder = claim(&backend, "a");
    granted(holder.attempt(Wait::No).await);
    assert_eq!(holder.write_note(&note(0, "a")).await.unwrap(), Noted::Outdated);
    assert_eq!(backend.note(&mutex("a")).await.unwrap(), Note::default());
    assert_eq!(holder.write_note(&Note::default()).await.unwrap(), Noted::Written);
    let mut last = Note::default();
    for revision in
        [1, 9, 10, 1 << 53, (1 << 53) + 1, i64::MAX.unsigned_abs() + 1, u64::MAX - 1, u64::MAX]
    {
        let next = note(revision, "a ");
        assert_eq!(holder.write_note(&next).await.unwrap(), Noted::Written, "{revision}");
        assert_eq!(holder.write_note(&last).await.unwrap(), Noted::Outdated, "{revision}");
        for other in ["a", "A ", "a  ", ""] {
            assert_eq!(
                holder.write_note(&note(revision, other)).await.unwrap(),
                Noted::Outdated,
                "{other:?}"
            );
        }
        assert_eq!(holder.write_note(&next).await.unwrap(), Noted::Written, "{revision}");
        assert_eq!(backend.note(&mutex("a")).await.unwrap(), next);
        last = next;
    }
    given_up(holder.release()).await;
}

async fn c13_a_demoted_primary_reports_neither_a_note_nor_the_time(flavor: SqlFlavor) {
    let bed = Bed::own(flavor, &[]);
    let backend = bed.connect(QUIET).await;
    let mut admin = bed.admin().await;
    let mut holder = claim(&backend, "a");
    granted(holder.attempt(Wait::No).await);
    assert_eq!(holder.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    // This asks on an existing connection, because a new one would be refused as it is opened.
    for is_time in [false, true] {
        backend.time().await.unwrap();
        admin.run("SET GLOBAL read_only=1").await;
        let error = match is_time {
            false => backend.note(&mutex("a")).await.unwrap_err(),
            true => backend.time().await.unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
        let error = holder.write_note(&note(2, "two")).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::ReadOnly, false),
            "{error}"
        );
        admin.run("SET GLOBAL read_only=0").await;
        assert_eq!(backend.note(&mutex("a")).await.unwrap(), note(1, "one"));
    }
    assert_eq!(holder.write_note(&note(2, "two")).await.unwrap(), Noted::Written);
    given_up(holder.release()).await;
}

async fn c13_the_errors_for_a_missing_table_and_a_missing_right_name_a_remedy(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    bed.connect(QUIET).await;
    let grants = ["meta", "lock", "holder", "note"]
        .map(|t| format!("SELECT,INSERT,UPDATE,DELETE ON {}", bed.table(t)));
    let url = bed.user(&mut admin, &grants.each_ref().map(String::as_str)).await;
    let backend = connect(&url).await.unwrap();
    let mut holder = claim(&backend, "a");
    granted(holder.attempt(Wait::No).await);
    assert_eq!(holder.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    // A missing right is found when the backend connects, and not with the first note.
    let less = bed.user(&mut admin, &grants.each_ref().map(String::as_str)[..3]).await;
    let error = refused(&format!("{less}&create_table=false")).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("grant SELECT, INSERT, UPDATE and DELETE"), "{error}");
    admin.run(format!("DROP TABLE {}", bed.table("note"))).await;
    for error in [
        holder.write_note(&note(2, "two")).await.unwrap_err(),
        backend.note(&mutex("a")).await.unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::WrongType, false),
            "{error}"
        );
        assert!(error.to_string().contains("tables do not exist"), "{error}");
    }
    // No open transaction is left of this.
    given_up(holder.release()).await;
    next_token(&backend, "a").await;
}

async fn c14_tables_of_a_version_without_notes_get_a_note_table(flavor: SqlFlavor) {
    let bed = Bed::shared(flavor);
    let mut admin = bed.admin().await;
    let before = next_token(&bed.connect(QUIET).await, "a").await;
    admin.run(format!("DROP TABLE {}", bed.table("note"))).await;
    let error = refused(&bed.url("create_table=false")).await;
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    let create = format!("CREATE TABLE IF NOT EXISTS {}", bed.table("note"));
    assert!(error.to_string().contains(&create), "{error}");
    let backend = bed.connect(QUIET).await;
    assert!(next_token(&backend, "a").await > before, "the others stay");
    assert_eq!(backend.note(&mutex("a")).await.unwrap(), Note::default());
    let earliest = SystemTime::now();
    let told = backend.time().await.unwrap();
    let latest = SystemTime::now() + Duration::from_millis(1);
    assert!(
        (earliest - Duration::from_millis(1)..latest).contains(&told),
        "{earliest:?}, then {told:?}"
    );
}
