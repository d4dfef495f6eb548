//! Sessions that end, and the claims on them.

use std::time::{Duration, Instant};

use lockkit_core::{
    Kind,
    spi::{Backend as _, LossReason, Released, RenewalOutcome, Wait},
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::support::*;

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// A session ends for its process at once when its runtime ends. For the server it ends only after
/// its timeout.
#[test]
fn c1_a_claim_on_a_new_session_waits_behind_its_own_old_node() {
    let bed = Bed::shared();
    let first = runtime();
    let second = runtime();
    let (zk, (mut holder, signal), before) = first.block_on(async {
        let zk = bed.connect(&session(24)).await;
        let (mut holder, signal) = waiter(&zk, "a");
        let grant = granted(holder.attempt(Wait::Queue).await);
        (zk, (holder, signal), grant.token)
    });
    let ended = Instant::now();
    drop(first);
    second.block_on(async {
        signal.heard().await;
        let admin = bed.admin().await;
        let folder = bed.folder(Kind::Mutex, "a");
        let old = admin.children(&folder).await;
        assert_eq!(old.len(), 1, "the server can't know yet");
        assert_eq!(
            holder.renew(None).await.unwrap(),
            RenewalOutcome::Lost(LossReason::SessionLost)
        );
        let queued = busy(Ok(persistently(async || holder.attempt(Wait::Queue).await).await)).0;
        assert!(queued, "the old node is not ours any more");
        let queue = admin.children(&folder).await;
        assert_eq!((queue.len(), &queue[0]), (2, &old[0]), "a new node behind the old one");
        let grant = lock(&mut holder).await;
        // The last heartbeat of the old session was at most one interval before its end.
        assert!(ended.elapsed() > Duration::from_secs(20), "{:?}", ended.elapsed());
        assert!(grant.token > before);
        assert_eq!(grant.token.get(), admin.created(&format!("{folder}/{}", queue[1])).await);
        assert!(!admin.exists(&format!("{folder}/{}", old[0])).await);
        assert_eq!(persistently(async || holder.release().await).await, Released::Freed);
        drop(zk);
        bed.assert_clean().await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_an_unanswered_create_of_a_session_that_expired_is_not_adopted_by_the_next() {
    let bed = Bed::shared();
    let admin = bed.admin().await;
    let (zk, proxy) = bed.behind_proxy(&session(12)).await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut claim = claim(&zk, "a");
    proxy.set(|toxics| (toxics.down.discard, toxics.refuse) = (true, true));
    let made = async {
        until("the node is made", async || !admin.children(&folder).await.is_empty()).await;
        let node = admin.children(&folder).await.pop().unwrap();
        let token = admin.created(&format!("{folder}/{node}")).await;
        proxy.set(|toxics| toxics.down.discard = false);
        proxy.reset_all();
        (node, token)
    };
    let (attempt, (node, before)) = tokio::join!(claim.attempt(Wait::Queue), made);
    assert!(attempt.unwrap_err().is_outcome_unknown());
    let path = format!("{folder}/{node}");
    until("the session expires", async || !admin.exists(&path).await).await;
    proxy.heal();
    let grant = granted(Ok(persistently(async || claim.attempt(Wait::Queue).await).await));
    assert!(grant.token.get() > before);
    let nodes = admin.children(&folder).await;
    assert_eq!(nodes.len(), 1);
    assert_ne!(nodes[0], node);
    assert_eq!(persistently(async || claim.release().await).await, Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_cut_off_holder_learns_of_its_loss_before_the_next_grant() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(&session(9)).await;
    let cut_off = locker(zk);
    let other = bed.locker("").await;
    let holder = cut_off.mutex("a").unwrap().lock().await.unwrap();
    let before = holder.fencing_token();
    let waiting = tokio::spawn({
        let mutex = other.mutex("a").unwrap();
        let lost = holder.lost();
        async move { (mutex.lock().await.unwrap(), lost.is_lost()) }
    });
    proxy.set(|toxics| toxics.refuse = true);
    proxy.reset_all();
    timeout(SOON, holder.lost()).await.expect("it is not told");
    assert!(!holder.is_held());
    let (next, was_lost) = waiting.await.unwrap();
    assert!(was_lost, "C3: the holder still had it at the next grant");
    assert!(next.fencing_token() > before);
    // The claim is granted at once, on a new session.
    proxy.heal();
    let again = tokio::spawn({
        let mutex = cut_off.mutex("a").unwrap();
        async move { mutex.lock().await.unwrap().fencing_token() }
    });
    next.release().await.unwrap();
    assert!(again.await.unwrap() > before);
    drop(holder);
    cut_off.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
    bed.assert_clean().await;
}

#[tokio::test]
async fn c9_shutdown_ends_the_session_and_its_locks() {
    let bed = Bed::shared();
    let locker = bed.locker("").await;
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    drop(guard);
    locker.shutdown().await.unwrap();
    // Long before the session timeout.
    bed.assert_clean().await;
    let next = bed.locker("").await;
    next.mutex("a")
        .unwrap()
        .try_lock()
        .await
        .unwrap()
        .expect("it is free")
        .release()
        .await
        .unwrap();
}

/// A held lock would keep the session alive if closing did not end it.
#[tokio::test]
async fn c9_closing_ends_the_session_under_a_claim_that_is_still_held() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    zk.close().await.unwrap();
    bed.assert_clean().await;
    assert_eq!(holder.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::SessionLost));
}
