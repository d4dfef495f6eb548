//! Mutexes without a queue, and requests and replies that the network loses.

use std::time::Duration;

use lockkit_core::{
    Kind,
    spi::{Released, RenewalOutcome, Wait},
};
use tokio::time::timeout;

use crate::support::*;

const QUERY: &str = "fair=false";

#[tokio::test]
async fn c2_c7_a_release_that_arrives_late_does_not_free_the_next_owners_lock() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let steady = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    let mut first = claim(&zk, "a");
    let mut second = claim(&steady, "a");
    granted(first.attempt(Wait::Queue).await);
    proxy.set(|toxics| toxics.up.hold = true);
    assert!(timeout(Duration::from_millis(100), first.release()).await.is_err());
    // Meanwhile an operator frees it, and another claim takes it.
    admin.delete(&node).await;
    granted(second.attempt(Wait::Queue).await);
    let standing = admin.created(&node).await;
    proxy.heal();
    assert_eq!(persistently(async || first.release().await).await, Released::NotHeld);
    drop(first);
    // A request of the same session, behind all of those.
    assert!(!busy(claim(&zk, "a").attempt(Wait::No).await).0);
    assert_eq!(admin.created(&node).await, standing);
    assert!(matches!(second.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c2_a_repeated_release_does_not_free_the_lock_of_another_task_of_the_session() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    let mut first = claim(&zk, "a");
    let mut second = claim(&zk, "a");
    granted(first.attempt(Wait::Queue).await);
    let freed = until("it is freed", async || !admin.exists(&node).await);
    unanswered(&proxy, first.release(), freed).await;
    granted(Ok(persistently(async || second.attempt(Wait::Queue).await).await));
    let standing = admin.created(&node).await;
    assert_eq!(persistently(async || first.release().await).await, Released::NotHeld);
    assert_eq!(admin.created(&node).await, standing);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c5_a_grant_that_was_not_answered_is_adopted_with_its_token_or_undone() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    for adopt in [true, false, true, false] {
        let mut claim = claim(&zk, "a");
        let made = until("the node is made", async || admin.exists(&node).await);
        unanswered(&proxy, claim.attempt(Wait::Queue), made).await;
        let created = admin.created(&node).await;
        if adopt {
            let grant = granted(Ok(persistently(async || claim.attempt(Wait::Queue).await).await));
            assert_eq!((grant.token.get(), admin.created(&node).await), (created, created));
            assert_eq!(claim.release().await.unwrap(), Released::Freed);
        } else {
            drop(claim);
        }
        bed.assert_clean().await;
    }
}

/// A lost reply, and a reaper: the new folder has nothing of the folder in which the release was
/// applied.
#[tokio::test]
async fn c2_c7_a_release_asked_again_after_its_folder_was_reaped_spares_the_next_owner() {
    let bed = Bed::eager();
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let steady = bed.connect(QUERY).await;
    let third = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let mut first = claim(&zk, "a");
    let mut second = claim(&steady, "a");
    granted(first.attempt(Wait::Queue).await);
    let taken = async {
        let folder = bed.folder(Kind::Mutex, "a");
        until("the folder is deleted", async || !admin.exists(&folder).await).await;
        granted(second.attempt(Wait::Queue).await);
    };
    unanswered(&proxy, first.release(), taken).await;
    assert_eq!(persistently(async || first.release().await).await, Released::NotHeld);
    assert!(!busy(claim(&third, "a").attempt(Wait::No).await).0, "a third one got it");
    assert!(matches!(second.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c1_c2_a_lost_attempt_neither_takes_nor_frees_the_lock_of_another_task() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    for give_up in [false, true] {
        let mut first = claim(&zk, "a");
        let mut second = claim(&zk, "a");
        until("an attempt is lost", async || {
            proxy.set(|toxics| toxics.up.hold = true);
            let lost = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                proxy.reset_all();
                proxy.heal();
            };
            let (attempt, ()) = tokio::join!(first.attempt(Wait::Queue), lost);
            if attempt.is_ok() {
                // The attempt was sent only after the reset, so it is repeated. An earlier try may
                // have freed the lock.
                let _ = persistently(async || first.release().await).await;
            }
            attempt.is_err_and(|error| error.is_outcome_unknown())
        })
        .await;
        // On the same session, so only the written data distinguishes the two claims.
        granted(Ok(persistently(async || second.attempt(Wait::Queue).await).await));
        let standing = admin.created(&node).await;
        if !give_up {
            assert!(!busy(first.attempt(Wait::Queue).await).0);
        }
        assert_eq!(first.release().await.unwrap(), Released::NotHeld);
        assert_eq!(admin.created(&node).await, standing);
        assert_eq!(second.release().await.unwrap(), Released::Freed);
        bed.assert_clean().await;
    }
}

#[tokio::test]
async fn c7_a_release_after_an_unanswered_attempt_frees_the_lock_and_answers_not_held() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    let mut claim = claim(&zk, "a");
    let made = until("the node is made", async || admin.exists(&node).await);
    unanswered(&proxy, claim.attempt(Wait::Queue), made).await;
    assert_eq!(persistently(async || claim.release().await).await, Released::NotHeld);
    bed.assert_clean().await;
}
