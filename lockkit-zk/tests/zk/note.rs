//! The path of a note, foreign nodes on that path, and the servers' clock.

use std::time::{Duration, SystemTime};

use lockkit_core::{
    ErrorKind, Kind,
    spi::{Admin as _, MAX_NOTE_BYTES, Note, Noted, Released, Wait},
};
use lockkit_zk::zookeeper_client::{Acls, CreateMode};

use crate::support::*;

const BOTH: [&str; 2] = ["", "fair=false"];
const UNFAIR: &str = "fair=false";

fn note(revision: u64, text: &str) -> Note {
    Note::new(revision, text.to_owned())
}

impl Bed {
    /// The same server, with a prefix for locks of this query.
    fn with(&self, query: &str) -> Self {
        Self { prefix: format!("{}{}", self.prefix, query.len()), ..self.clone() }
    }

    fn note(&self, name: &str) -> String {
        format!("/{}/note/mutex/{name}", self.prefix)
    }
}

#[tokio::test]
async fn c11_a_note_outlasts_the_folder_of_its_lock_and_is_no_part_of_it() {
    let bed = Bed::eager();
    let admin = bed.admin().await;
    for query in BOTH {
        let bed = bed.with(query);
        let zk = bed.connect(query).await;
        let folder = bed.folder(Kind::Mutex, "a%2Fb");
        let mut holder = claim(&zk, "a/b");
        granted(holder.attempt(Wait::Queue).await);
        let before = admin.children(&folder).await;
        let text = "\0\n ".to_owned() + &"x".repeat(MAX_NOTE_BYTES - 3);
        assert_eq!(holder.write_note(&note(1, &text)).await.unwrap(), Noted::Written);
        assert_eq!(admin.children(&folder).await, before);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        assert_eq!(zk.names(Kind::Mutex, "").await.unwrap(), []);
        until("the folder is deleted", async || !admin.exists(&folder).await).await;
        let (data, stat) = admin.0.get_data(&bed.note("a%2Fb")).await.unwrap();
        assert_eq!(data, format!("lockkit/1 1\n{text}").into_bytes());
        assert_eq!(stat.ephemeral_owner, 0);
        assert_eq!(zk.note(&mutex("a/b")).await.unwrap(), note(1, &text));
        // A claim that looks for the version of a new folder finds another count.
        let mut next = claim(&zk, "a/b");
        granted(next.attempt(Wait::Queue).await);
        assert_eq!(next.write_note(&note(2, "two")).await.unwrap(), Noted::Written);
        assert_eq!(holder.write_note(&note(3, "late")).await.unwrap(), Noted::NotHeld);
        assert_eq!(next.release().await.unwrap(), Released::Freed);
        drop(zk);
        bed.assert_clean().await;
    }
}

/// A node in the queue is not a grant yet.
#[tokio::test]
async fn c2_a_waiter_writes_no_note() {
    let bed = Bed::shared();
    for query in BOTH {
        let bed = bed.with(query);
        let zk = bed.connect(query).await;
        let mut holder = claim(&zk, "a");
        let mut waiter = claim(&zk, "a");
        granted(holder.attempt(Wait::Queue).await);
        busy(waiter.attempt(Wait::Queue).await);
        assert_eq!(waiter.write_note(&note(1, "early")).await.unwrap(), Noted::NotHeld);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        lock(&mut waiter).await;
        assert_eq!(waiter.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        bed.assert_clean().await;
    }
}

/// The client has not noticed the deletion yet. The test catches a claim that only reads before it
/// writes, or that relies on what it remembers.
#[tokio::test]
async fn c2_a_holder_whose_node_was_deleted_can_not_write_the_note() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    for query in BOTH {
        let bed = bed.with(query);
        let one = bed.connect(query).await;
        let two = bed.connect(query).await;
        let folder = bed.folder(Kind::Mutex, "a");
        let mut holder = claim(&one, "a");
        granted(holder.attempt(Wait::Queue).await);
        for child in admin.children(&folder).await {
            // The node that distinguishes the grants stays.
            if !child.starts_with("held-") {
                admin.delete(&format!("{folder}/{child}")).await;
            }
        }
        assert_eq!(holder.write_note(&note(1, "late")).await.unwrap(), Noted::NotHeld, "{query}");
        let mut next = claim(&two, "a");
        granted(next.attempt(Wait::Queue).await);
        assert_eq!(holder.write_note(&note(1, "late")).await.unwrap(), Noted::NotHeld, "{query}");
        assert_eq!(next.write_note(&note(1, "one")).await.unwrap(), Noted::Written);
        assert_eq!(one.note(&mutex("a")).await.unwrap(), note(1, "one"));
        assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
        assert_eq!(next.release().await.unwrap(), Released::Freed);
        bed.assert_clean().await;
    }
}

/// The version of the folder distinguishes the grants, and a foreign client may change it.
#[tokio::test]
async fn c2_a_note_of_an_unfair_mutex_survives_a_write_to_its_folder_and_not_its_next_owner() {
    let bed = Bed::shared();
    let one = bed.connect(UNFAIR).await;
    let two = bed.connect(UNFAIR).await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut first = claim(&one, "a");
    let mut second = claim(&two, "a");
    granted(first.attempt(Wait::Queue).await);
    for revision in 1..4 {
        admin.0.set_data(&folder, b"stranger", None).await.unwrap();
        assert_eq!(first.write_note(&note(revision, "a")).await.unwrap(), Noted::Written);
    }
    admin.delete_all(&folder).await;
    granted(second.attempt(Wait::Queue).await);
    assert_eq!(first.write_note(&note(4, "late")).await.unwrap(), Noted::NotHeld);
    assert_eq!(second.write_note(&note(4, "b")).await.unwrap(), Noted::Written);
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c5_a_note_that_was_deleted_by_hand_begins_anew() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    for path in [bed.note("a"), format!("/{}/note", bed.prefix)] {
        for written in [note(7, "a"), note(8, "b")] {
            assert_eq!(holder.write_note(&written).await.unwrap(), Noted::Written);
        }
        assert_eq!(holder.write_note(&note(1, "late")).await.unwrap(), Noted::Outdated);
        admin.delete_all(&path).await;
        assert_eq!(zk.note(&mutex("a")).await.unwrap(), Note::default());
        assert_eq!(holder.write_note(&note(0, "a")).await.unwrap(), Noted::Outdated);
        assert_eq!(holder.write_note(&note(1, "a")).await.unwrap(), Noted::Written);
        assert_eq!(holder.write_note(&note(1, "a")).await.unwrap(), Noted::Written, "again");
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_foreign_data_in_place_of_a_note_is_an_error_with_its_node_and_left_alone() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.0.mkdir(&bed.note("a"), &persistent).await.unwrap();
    for foreign in
        [&b"foreign"[..], b"", b"lockkit/1 01\na", b"lockkit/1 1 a", b"lockkit/1 1\n\xff"]
    {
        admin.0.set_data(&bed.note("a"), foreign, None).await.unwrap();
        for error in [
            holder.write_note(&note(1, "a")).await.unwrap_err(),
            zk.note(&mutex("a")).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
            assert!(error.to_string().contains(&bed.note("a")), "{error}");
        }
        assert_eq!(admin.0.get_data(&bed.note("a")).await.unwrap().0, foreign);
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c14_the_time_is_reported_after_the_clock_node_was_deleted() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    for _ in 0..3 {
        let before = SystemTime::now();
        let told = zk.time().await.unwrap();
        // The server returns whole milliseconds.
        let after = SystemTime::now() + Duration::from_millis(2);
        assert!(
            (before - Duration::from_millis(2)..after).contains(&told),
            "{before:?}, then {told:?}"
        );
        admin.delete(&format!("/{}/clock", bed.prefix)).await;
    }
}
