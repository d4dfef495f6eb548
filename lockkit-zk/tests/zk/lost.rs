//! Requests and replies that the network loses.

use std::time::Duration;

use lockkit_conformance::proxy::Proxy;
use lockkit_core::{
    Kind,
    spi::{Claim, Released, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::time::timeout;

use crate::support::*;

/// Runs the first attempt of a claim and loses its reply: the node exists, and the attempt does not
/// know.
async fn lose_the_reply(bed: &Bed, proxy: &Proxy, claim: &mut Box<dyn Claim>) {
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let before = admin.children(&folder).await.len();
    let made = until("the node is made", async || admin.children(&folder).await.len() > before);
    unanswered(proxy, claim.attempt(Wait::Queue), made).await;
}

#[tokio::test]
async fn c5_a_node_whose_create_was_not_answered_is_adopted_with_its_token() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    // Once for a new folder, then for a known one.
    for _ in 0..2 {
        let mut claim = claim(&zk, "a");
        lose_the_reply(&bed, &proxy, &mut claim).await;
        let node = admin.children(&folder).await.pop().unwrap();
        let grant = granted(Ok(persistently(async || claim.attempt(Wait::Queue).await).await));
        assert_eq!(admin.children(&folder).await, std::slice::from_ref(&node), "no second node");
        assert_eq!(grant.token.get(), admin.created(&format!("{folder}/{node}")).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
    drop(zk);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c5_a_waiter_keeps_its_place_when_its_create_was_not_answered() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let steady = bed.connect("").await;
    let mut holder = claim(&steady, "a");
    let mut second = claim(&zk, "a");
    let mut third = claim(&steady, "a");
    granted(holder.attempt(Wait::Queue).await);
    lose_the_reply(&bed, &proxy, &mut second).await;
    assert!(busy(third.attempt(Wait::Queue).await).0);
    assert!(busy(Ok(persistently(async || second.attempt(Wait::Queue).await).await)).0);
    given_up(holder.release()).await;
    let before = lock(&mut second).await.token;
    assert!(busy(third.attempt(Wait::Queue).await).0);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    assert!(lock(&mut third).await.token > before);
    drop((holder, second, third));
    bed.assert_clean().await;
}

#[tokio::test]
async fn c5_an_attempt_that_is_given_up_unanswered_leaves_no_ghost() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    // The claim itself deletes the node by its release.
    let mut first = claim(&zk, "a");
    lose_the_reply(&bed, &proxy, &mut first).await;
    let released = persistently(async || first.release().await).await;
    assert_eq!(released, Released::NotHeld, "it never knew of a grant");
    bed.assert_clean().await;
    // The claim is dropped, so the session deletes the node.
    let mut second = claim(&zk, "a");
    lose_the_reply(&bed, &proxy, &mut second).await;
    drop(second);
    bed.assert_clean().await;
    granted(Ok(persistently(async || claim(&zk, "a").attempt(Wait::Queue).await).await));
    bed.assert_clean().await;
}

/// The create request of a dropped future stays in the client's queue. It is executed once there is
/// a connection again.
#[tokio::test]
async fn c6_a_create_that_arrives_after_its_future_was_dropped_leaves_no_ghost() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let admin = bed.admin().await;
    granted(claim(&zk, "a").attempt(Wait::Queue).await);
    bed.assert_clean().await;
    let version = async || {
        let folder = admin.0.check_stat(&bed.folder(Kind::Mutex, "a")).await.unwrap();
        folder.map(|folder| folder.cversion)
    };
    let before = version().await;
    proxy.set(|toxics| toxics.up.hold = true);
    let mut late = claim(&zk, "a");
    let patience = Duration::from_millis(50);
    assert!(timeout(patience, late.attempt(Wait::Queue)).await.is_err());
    drop(late);
    proxy.heal();
    // The node is made and deleted, so the folder changes twice.
    until("the late create is undone", async || {
        version().await >= before.map(|version| version + 2)
    })
    .await;
    bed.assert_clean().await;
}

async fn release_in_vain(claim: &mut Box<dyn Claim>) {
    let error = claim.release().await.unwrap_err();
    assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}");
}

#[tokio::test]
async fn c7_a_release_whose_delete_was_lost_is_repeated_until_the_node_is_deleted() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    // Only the first byte of the request arrives.
    proxy.set(|toxics| toxics.up.cut_after = Some(1));
    release_in_vain(&mut holder).await;
    proxy.heal();
    let steady = bed.connect("").await;
    let mut other = claim(&steady, "a");
    assert!(!busy(other.attempt(Wait::No).await).0, "it still stands");
    assert_eq!(persistently(async || holder.release().await).await, Released::Freed);
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
    granted(other.attempt(Wait::No).await);
    given_up(other.release()).await;
    bed.assert_clean().await;
}

#[tokio::test]
async fn c7_a_release_whose_reply_was_lost_is_not_undone_by_asking_again() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    proxy.set(|toxics| toxics.down.discard = true);
    let applied = async {
        bed.assert_clean().await;
        proxy.reset_all();
        proxy.heal();
    };
    tokio::join!(release_in_vain(&mut holder), applied);
    let steady = bed.connect("").await;
    let mut other = claim(&steady, "a");
    granted(other.attempt(Wait::Queue).await);
    assert_eq!(persistently(async || holder.release().await).await, Released::NotHeld);
    assert_eq!(other.release().await.unwrap(), Released::Freed, "the other one's node still stood");
}

#[tokio::test]
async fn c6_a_held_claim_that_is_dropped_in_an_outage_is_freed_after_it() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    for cut in [false, true] {
        let mut holder = claim(&zk, "a");
        granted(Ok(persistently(async || holder.attempt(Wait::Queue).await).await));
        if cut {
            proxy.set(|toxics| toxics.refuse = true);
            proxy.reset_all();
        } else {
            proxy.set(|toxics| toxics.up.hold = true);
        }
        drop(holder);
        tokio::time::sleep(Duration::from_millis(100)).await;
        // A delete on its way is lost, and must be repeated.
        proxy.reset_all();
        proxy.heal();
        bed.assert_clean().await;
    }
    drop(zk);
}

#[tokio::test]
async fn c8_a_try_after_an_unanswered_attempt_leaves_the_queue() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let steady = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut holder = claim(&steady, "a");
    let mut second = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    lose_the_reply(&bed, &proxy, &mut second).await;
    assert!(!busy(Ok(persistently(async || second.attempt(Wait::No).await).await)).0);
    assert_eq!(admin.children(&folder).await.len(), 1, "only the holder");
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}
