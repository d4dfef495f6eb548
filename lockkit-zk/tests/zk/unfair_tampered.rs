//! Mutexes without a queue whose nodes another client deletes or writes.

use lockkit_core::{
    Kind,
    spi::{Backend as _, LossReason, Released, RenewalOutcome, Wait},
};

use crate::support::*;

const QUERY: &str = "fair=false";

/// Catches a release that uses only the version of the folder: a new folder counts its versions
/// from the start.
#[tokio::test]
async fn c2_a_release_after_the_folder_was_made_anew_spares_the_next_owner() {
    let bed = Bed::shared();
    let one = bed.connect(QUERY).await;
    let two = bed.connect(QUERY).await;
    let three = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    for drops in [false, true] {
        let mut first = claim(&one, "a");
        let mut second = claim(&two, "a");
        granted(first.attempt(Wait::Queue).await);
        admin.delete_all(&folder).await;
        granted(second.attempt(Wait::Queue).await);
        if drops {
            drop(first);
            // A request of the same session, behind the cleanup that the drop left to it.
            assert!(!busy(claim(&one, "a").attempt(Wait::Queue).await).0);
        } else {
            assert_eq!(first.release().await.unwrap(), Released::NotHeld);
        }
        assert!(!busy(claim(&three, "a").attempt(Wait::No).await).0, "a third one got it");
        assert!(matches!(second.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(second.release().await.unwrap(), Released::Freed);
        bed.assert_clean().await;
    }
}

/// Catches a release that takes each write to the folder for a change of the owner, and so leaves
/// its node.
#[tokio::test]
async fn c7_a_release_after_a_foreign_write_to_the_folder_leaves_no_ghost() {
    let bed = Bed::shared();
    let one = bed.connect(QUERY).await;
    let two = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut holder = claim(&one, "a");
    granted(holder.attempt(Wait::Queue).await);
    admin.0.set_data(&folder, b"note", None).await.unwrap();
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert!(admin.children(&folder).await.is_empty());
    granted(claim(&two, "a").attempt(Wait::No).await);
    bed.assert_clean().await;
}

/// The second node, whose name identifies the owner, must not outlast the node that was deleted by
/// hand.
#[tokio::test]
async fn c2_c6_nothing_is_left_of_a_lock_whose_node_alone_was_deleted() {
    let bed = Bed::shared();
    let zk = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    for drops in [false, true] {
        let mut holder = claim(&zk, "a");
        granted(holder.attempt(Wait::Queue).await);
        admin.delete(&format!("{folder}/held")).await;
        if drops {
            drop(holder);
        } else {
            assert_eq!(
                holder.renew(None).await.unwrap(),
                RenewalOutcome::Lost(LossReason::Evicted)
            );
            assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
            assert!(admin.children(&folder).await.is_empty());
        }
        bed.assert_clean().await;
    }
    assert!(zk.inspect(&mutex("a")).await.unwrap().holders.is_empty());
}
