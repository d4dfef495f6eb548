//! Tests the note beside a lock, and the server's clock.

use std::time::{Duration, SystemTime};

use lockkit_core::{
    ErrorKind, Kind,
    spi::{Admin as _, Backend as _, MAX_NOTE_BYTES, Note, Noted, Released, Wait},
};

use crate::support::*;

fn note_key(name: &str) -> String {
    format!("lockkit:mutex:{{{name}}}:note")
}

fn note(revision: u64, text: &str) -> Note {
    Note::new(revision, text.to_owned())
}

#[tokio::test]
async fn c11_a_note_is_one_hash_that_never_lapses_and_is_no_name_in_use() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    store.admin.reset_calls().await;
    let text = "\0\u{1f512}%{}:".to_owned() + &"x".repeat(MAX_NOTE_BYTES - 9);
    assert_eq!(claim.write_note(&note(1, &text)).await.unwrap(), Noted::Written);
    assert_eq!(store.admin.requests().await, 1);
    assert_eq!(store.redis.note(&mutex("a")).await.unwrap(), note(1, &text));
    assert_eq!(store.admin.ask::<String>(&["HGET", &note_key("a"), "revision"]).await, "1");
    assert_eq!(store.admin.ask::<String>(&["HGET", &note_key("a"), "text"]).await, text);
    assert_eq!(store.admin.ask::<i64>(&["PTTL", &note_key("a")]).await, -1);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    assert_eq!(store.redis.names(Kind::Mutex, "").await.unwrap(), []);
    assert_eq!(store.admin.keys().await, [note_key("a"), counter_key()]);
}

#[tokio::test]
async fn c5_revisions_are_compared_exactly_up_to_the_last() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    // In Lua, 2^53 and its successor are the same number. As texts, 9 is larger than 10.
    let rising = [9, 10, 1 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX];
    let mut last = Note::default();
    for revision in rising {
        let next = note(revision, "a");
        assert_eq!(claim.write_note(&next).await.unwrap(), Noted::Written, "{revision}");
        assert_eq!(claim.write_note(&last).await.unwrap(), Noted::Outdated, "{revision}");
        assert_eq!(
            claim.write_note(&note(revision, "b")).await.unwrap(),
            Noted::Outdated,
            "{revision}"
        );
        assert_eq!(claim.write_note(&next).await.unwrap(), Noted::Written, "{revision}");
        assert_eq!(store.redis.note(&mutex("a")).await.unwrap(), next);
        last = next;
    }
}

#[tokio::test]
async fn c5_nothing_of_revision_zero_is_written() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    assert_eq!(claim.write_note(&note(0, "a")).await.unwrap(), Noted::Outdated);
    assert_eq!(claim.write_note(&Note::default()).await.unwrap(), Noted::Written);
    assert_eq!(store.redis.note(&mutex("a")).await.unwrap(), Note::default());
}

#[tokio::test]
async fn c2_the_label_of_an_owner_does_not_hide_its_grant_and_a_transfer_ends_it() {
    let store = Store::start().await;
    let mut spec = spec("a");
    spec.label = Some("host 7:1".into());
    let mut claim = store.redis.claim(spec).unwrap();
    granted(claim.attempt(Wait::No).await);
    assert_eq!(claim.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    let (mut next, signal) = store.waiter("a");
    assert!(busy(next.attempt(Wait::Queue).await).0);
    assert_eq!(next.write_note(&note(2, "early")).await.unwrap(), Noted::NotHeld);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    lock(&mut next, &signal).await;
    assert_eq!(claim.write_note(&note(2, "late")).await.unwrap(), Noted::NotHeld);
    assert_eq!(next.write_note(&note(2, "two")).await.unwrap(), Noted::Written);
}

#[tokio::test]
async fn c13_foreign_data_in_place_of_a_note_is_an_error_with_its_key_and_left_alone() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    store.admin.ask::<()>(&["SET", &note_key("a"), "foreign"]).await;
    for error in [
        claim.write_note(&note(1, "a")).await.unwrap_err(),
        store.redis.note(&mutex("a")).await.unwrap_err(),
    ] {
        assert_eq!(
            (error.kind(), error.is_outcome_unknown()),
            (ErrorKind::WrongType, false),
            "{error}"
        );
    }
    assert_eq!(store.admin.ask::<String>(&["GET", &note_key("a")]).await, "foreign");
    for fields in [&["revision", "x", "text", "a"][..], &["text", "a"], &["revision", "1"]] {
        store.admin.ask::<()>(&["DEL", &note_key("a")]).await;
        store.admin.ask::<()>(&[&["HSET", &note_key("a")], fields].concat()).await;
        let error = store.redis.note(&mutex("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(error.to_string().contains("lockkit:mutex:{a}:note"), "{error}");
    }
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c14_a_replica_reports_neither_a_note_nor_the_time() {
    let store = Store::start().await;
    let mut claim = holder(&store, "a").await;
    assert_eq!(claim.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
    let before = SystemTime::now();
    let told = store.redis.time().await.unwrap();
    let after = SystemTime::now() + Duration::from_millis(1);
    assert!(
        (before - Duration::from_millis(1)..after).contains(&told),
        "{before:?}, then {told:?}"
    );
    // The server becomes a replica of a primary that is not there, so it keeps its data.
    store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    // Each question uses a connection from before.
    let error = store.redis.note(&mutex("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    store.admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    assert_eq!(store.redis.note(&mutex("a")).await.unwrap().text, "one");
    store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let error = store.redis.time().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    store.admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    store.redis.time().await.unwrap();
}
