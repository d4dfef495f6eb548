//! Tests of the note beside a row lock, which is no part of the lock's transaction.

use lockkit_core::spi::{Admin as _, Attempt, Note, Noted, Released, Wait};
use lockkit_mysql::{LockTransaction, mysql_async::prelude::Queryable as _};
use tokio::time::timeout;

use crate::support::*;

on_both!(
    c2_a_note_is_seen_at_once_and_not_undone_with_the_transaction,
    c2_a_note_waits_for_a_token_that_is_being_changed,
    c4_garbage_collection_leaves_notes_alone,
);

fn note(revision: u64, text: &str) -> Note {
    Note::new(revision, text.to_owned())
}

/// The note is written while a statement of the user's runs in the transaction.
async fn c2_a_note_is_seen_at_once_and_not_undone_with_the_transaction(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    store.admin.run("CREATE TABLE data(id INT PRIMARY KEY)").await;
    let locker = store.locker().await;
    let name = mutex("a");
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    let transaction = LockTransaction::of(&guard).unwrap();
    let written = transaction.run(async |conn| {
        conn.query_drop("INSERT INTO data VALUES(1)").await.unwrap();
        guard.write_note(&note(1, "one")).await
    });
    assert_eq!(written.await.unwrap().unwrap(), Noted::Written);
    assert_eq!(store.mysql.note(&name).await.unwrap(), note(1, "one"));
    drop(transaction);
    drop(guard);
    let mut next = store.claim("a");
    let taken = async {
        while !matches!(next.attempt(Wait::Block(SOON)).await.unwrap(), Attempt::Granted(_)) {}
    };
    timeout(SOON, taken).await.expect("the lock is free");
    assert_eq!(store.admin.count("data").await, 0, "what was dropped is undone");
    assert_eq!(store.mysql.note(&name).await.unwrap(), note(1, "one"));
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

/// Catches a grant that is read without a lock on its row.
async fn c2_a_note_waits_for_a_token_that_is_being_changed(flavor: SqlFlavor) {
    let store = Store::start(flavor).await;
    let other = Admin::to(&store.server).await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let one = note(1, "one");
    let writes = "information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO `lockkit_note%'";
    for (change, expected) in
        [("label='x'", Noted::Written), ("owner='',fence=fence+1", Noted::NotHeld)]
    {
        store.admin.run("START TRANSACTION").await;
        store.admin.run(&format!("UPDATE lockkit_fence SET {change}")).await;
        let (noted, ()) = tokio::join!(holder.write_note(&one), async {
            until("the note waits", async || other.count(writes).await > 0).await;
            store.admin.run("COMMIT").await;
        });
        assert_eq!(noted.unwrap(), expected, "{change}");
    }
}

async fn c4_garbage_collection_leaves_notes_alone(flavor: SqlFlavor) {
    let store = Store::start_with(flavor, "&retention=3000h").await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    assert_eq!(holder.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    store.admin.run("UPDATE lockkit_fence SET acquired_us=1,fence=1").await;
    assert_eq!(store.mysql.collect_garbage().await.unwrap(), 1);
    assert_eq!(store.mysql.note(&mutex("a")).await.unwrap(), note(1, "one"));
}
