use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, OwnerId,
    spi::{Admin as _, Backend as _, Mode, Note, Released, Wait},
};
use lockkit_fixture::claims::given_up;

use super::{UNFAIR, claim_of};
use crate::support::*;

const OF_FORMAT_2: &str = "lockkit/2 000000000000000000000000000000a1 host-1";

fn assert_newer(error: &Error, path: &str) {
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{text}");
    assert!(text.contains("a newer lockkit wrote") && text.contains(path), "{text}");
    assert!(!text.contains("use another"), "{text}");
    assert!(!error.is_temporary() && !error.is_outcome_unknown(), "{text}");
}

/// A later layout marks its format in the folder of all mutexes, whatever it changes.
#[tokio::test]
async fn c1_c13_a_prefix_of_a_newer_lockkit_is_refused_and_not_changed() {
    for (folder, query) in
        [("mutex", ""), ("mutex", UNFAIR), ("election", ""), ("election", UNFAIR)]
    {
        let bed = Bed::shared();
        let admin = bed.admin().await;
        bed.load(&admin, &format!("lasting {folder} lockkit/2 of another layout")).await;
        let path = bed.path(folder);
        let error = match connect(&bed.url(query)).await {
            Err(error) if folder == "mutex" => error,
            Ok(zk) if folder == "election" => {
                let mut claim =
                    zk.claim(claim_of(Kind::Election, Mode::Exclusive, OwnerId::random())).unwrap();
                claim.attempt(Wait::Queue).await.unwrap_err()
            }
            other => panic!("{folder}: {other:?}"),
        };
        assert_newer(&error, &path);
        let (data, _) = admin.0.get_data(&path).await.unwrap();
        assert_eq!(data, b"lockkit/2 of another layout");
        assert!(admin.children(&path).await.is_empty());
    }
}

#[tokio::test]
async fn c1_c13_a_lock_of_a_newer_lockkit_is_refused_and_not_changed() {
    for kind in [Kind::Mutex, Kind::Election, Kind::RwLock, Kind::Semaphore] {
        let bed = Bed::shared();
        let admin = bed.admin().await;
        let theirs = format!("{kind}/orders/lockkit-2-held-0000000000");
        bed.load(
            &admin,
            &format!("lasting {kind}\nlasting {kind}/orders\nephemeral {theirs} {OF_FORMAT_2}"),
        )
        .await;
        let zk = bed.connect("").await;
        let one = std::num::NonZeroU32::MIN;
        let mode = if kind == Kind::Semaphore {
            Mode::Permits { count: one, limit: one }
        } else {
            Mode::Exclusive
        };
        let mut claim = zk.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
        assert_newer(&claim.attempt(Wait::Queue).await.unwrap_err(), &bed.path(&theirs));
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        let name = claim_of(kind, mode, OwnerId::random()).name;
        // A claim that does not wait may learn that the lock is taken, because that costs no list.
        let mut hasty = zk.claim(claim_of(kind, mode, OwnerId::random())).unwrap();
        match hasty.attempt(Wait::No).await {
            Err(error) => assert_newer(&error, &bed.path(&theirs)),
            taken => assert!(!busy(taken).0),
        }
        assert_newer(&zk.inspect(&name).await.unwrap_err(), &bed.path(&theirs));
        assert_newer(
            &zk.force_release(&name, FencingToken::new(7)).await.unwrap_err(),
            &bed.path(&theirs),
        );
        assert_eq!(
            admin.children(&bed.folder(kind, "orders")).await,
            ["lockkit-2-held-0000000000"]
        );
    }
}

/// In a queue the node's name counts: claims wait for its owner, and never free it.
#[tokio::test]
async fn c1_c14_waiters_wait_for_a_holder_with_newer_data_and_do_not_change_it() {
    for (query, node) in
        [("", "_c_0123456789abcdef0123456789abcdef-lock-0000000000"), (UNFAIR, "held")]
    {
        let bed = Bed::shared();
        let admin = bed.admin().await;
        let data = if query.is_empty() { "" } else { "\\n0123456789abcdef0123456789abcdef" };
        let mutexes = if query.is_empty() { "" } else { " lockkit/1 unfair" };
        let theirs = format!("mutex/orders/{node}");
        let dump = format!(
            "lasting mutex{mutexes}\nlasting mutex/orders\nephemeral {theirs} {OF_FORMAT_2}{data}"
        );
        bed.load(&admin, &dump).await;
        let before = bed.dump(&admin).await;
        let zk = bed.connect(query).await;
        let mut claim = claim(&zk, "orders");
        assert_eq!(busy(claim.attempt(Wait::Queue).await).0, query.is_empty());
        assert_newer(&zk.inspect(&mutex("orders")).await.unwrap_err(), &bed.path(&theirs));
        let token = FencingToken::new(admin.created(&bed.path(&theirs)).await);
        assert_newer(
            &zk.force_release(&mutex("orders"), token).await.unwrap_err(),
            &bed.path(&theirs),
        );
        given_up(claim.release()).await;
        assert_eq!(bed.dump(&admin).await, before);
    }
}

#[tokio::test]
async fn c5_c13_a_note_of_a_newer_lockkit_is_refused_and_not_changed() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    let dump = "lasting note\nlasting note/mutex\nlasting note/mutex/orders lockkit/2 7 x";
    bed.load(&admin, dump).await;
    let path = bed.path("note/mutex/orders");
    for query in ["", UNFAIR] {
        let zk = bed.connect(query).await;
        assert_newer(&zk.note(&mutex("orders")).await.unwrap_err(), &path);
        let mut holder = claim(&zk, "orders");
        granted(holder.attempt(Wait::Queue).await);
        for revision in [1, 8] {
            assert_newer(
                &holder.write_note(&Note::new(revision, "y".to_owned())).await.unwrap_err(),
                &path,
            );
        }
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        drop(zk);
        admin.delete_all(&bed.path("mutex")).await;
    }
    assert_eq!(admin.0.get_data(&path).await.unwrap().0, b"lockkit/2 7 x");
}
