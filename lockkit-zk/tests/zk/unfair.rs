//! Mutexes without a queue: one node at a fixed path.

use lockkit_core::{
    ErrorKind, Kind,
    spi::{Backend as _, LossReason, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::task::JoinSet;

use crate::support::*;

const QUERY: &str = "fair=false";

#[tokio::test]
async fn c1_two_clients_exclude_each_other_and_the_loser_is_woken() {
    let bed = Bed::shared();
    let one = bed.connect(QUERY).await;
    let two = bed.connect(QUERY).await;
    assert!(!one.descriptor().capabilities.fair);
    let (mut a, mut b) = (claim(&one, "a"), claim(&two, "a"));
    let first = granted(a.attempt(Wait::Queue).await).token;
    assert!(!busy(b.attempt(Wait::No).await).0);
    assert!(!busy(b.attempt(Wait::Queue).await).0, "there is no queue");
    assert!(matches!(a.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(granted(a.attempt(Wait::Queue).await).token, first, "the same grant");
    assert_eq!(a.release().await.unwrap(), Released::Freed);
    assert_eq!(a.release().await.unwrap(), Released::NotHeld);
    woken(&mut b).await;
    assert!(granted(b.attempt(Wait::Queue).await).token > first);
    assert_eq!(b.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_clients_that_race_are_served_one_by_one_with_rising_tokens() {
    let bed = Bed::shared();
    let lockers = [bed.locker(QUERY).await, bed.locker(QUERY).await];
    let last = std::sync::Arc::new(tokio::sync::Mutex::new(0));
    let mut tasks = JoinSet::new();
    for task in 0..6 {
        let mutex = lockers[task % 2].mutex("a").unwrap();
        let last = last.clone();
        tasks.spawn(async move {
            for _ in 0..25 {
                let guard = mutex.lock().await.unwrap();
                {
                    let mut last = last.try_lock().expect("two holders");
                    assert!(guard.fencing_token().get() > *last);
                    *last = guard.fencing_token().get();
                    tokio::task::yield_now().await;
                }
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    for locker in lockers {
        locker.shutdown().await.unwrap();
    }
    bed.assert_clean().await;
}

#[tokio::test]
async fn c2_a_past_owner_changes_nothing_for_the_present_one() {
    let bed = Bed::shared();
    let one = bed.connect(QUERY).await;
    let two = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    let (mut a, mut b) = (claim(&one, "a"), claim(&two, "a"));
    granted(a.attempt(Wait::Queue).await);
    admin.delete(&node).await;
    granted(b.attempt(Wait::Queue).await);
    let standing = admin.created(&node).await;
    assert_eq!(a.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(a.release().await.unwrap(), Released::NotHeld);
    assert_eq!(admin.created(&node).await, standing);
    assert!(matches!(b.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));

    // The same by a drop, which leaves the release to the session, and on the claim's own session.
    let mut c = claim(&one, "b");
    let mut d = claim(&one, "b");
    let node = bed.folder(Kind::Mutex, "b") + "/held";
    granted(c.attempt(Wait::Queue).await);
    admin.delete(&node).await;
    granted(d.attempt(Wait::Queue).await);
    let standing = admin.created(&node).await;
    drop(c);
    // The session cleans up in the order of its requests.
    let mut probe = claim(&one, "probe");
    for _ in 0..20 {
        granted(probe.attempt(Wait::Queue).await);
        given_up(probe.release()).await;
    }
    assert_eq!(admin.created(&node).await, standing);
    assert_eq!(b.release().await.unwrap(), Released::Freed);
    assert_eq!(d.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c1_queues_and_their_absence_don_t_mix_under_one_prefix() {
    for (first, second) in [("fair=true", "fair=false"), ("fair=false", "fair=true")] {
        let bed = Bed::shared();
        let zk = bed.connect(first).await;
        let error = refused(&bed.url(second)).await;
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        for word in [first, second, &*bed.prefix, "use another prefix"] {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
        drop(zk);
        // The other kinds have a queue anyway, and a prefix keeps its strategy when no locker uses
        // it.
        refused(&bed.url(second)).await;
        bed.connect(first).await;
    }
}

/// Deletes a prefix under a live locker. The new prefix has no record of the strategy unless the
/// locker writes it again.
#[tokio::test]
async fn c1_a_prefix_that_is_made_anew_keeps_the_strategy_of_its_live_locker() {
    let bed = Bed::shared();
    let zk = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let mut before = claim(&zk, "before");
    granted(before.attempt(Wait::Queue).await);
    given_up(before.release()).await;
    admin.delete_all(&format!("/{}", bed.prefix)).await;
    // For a name that was known, and for a new one.
    for name in ["before", "after"] {
        let mut holder = claim(&zk, name);
        granted(holder.attempt(Wait::Queue).await);
        let error = refused(&bed.url("fair=true")).await;
        assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
        assert!(!busy(claim(&bed.connect(QUERY).await, name).attempt(Wait::No).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        admin.delete_all(&format!("/{}", bed.prefix)).await;
    }
    bed.assert_clean().await;
}

#[tokio::test]
async fn c2_a_heartbeat_reports_the_loss_of_a_node_that_was_replaced_at_once() {
    let bed = Bed::shared();
    let one = bed.connect(&format!("{QUERY}&{}", session(24))).await;
    let two = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    let (mut first, signal) = waiter(&one, "a");
    let mut second = claim(&two, "a");
    granted(first.attempt(Wait::Queue).await);
    admin.delete(&node).await;
    granted(second.attempt(Wait::Queue).await);
    signal.heard().await;
    assert_eq!(first.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

/// No heartbeat has seen yet that the node is gone.
#[tokio::test]
async fn c2_a_holder_that_asks_again_after_its_node_was_deleted_gets_no_grant_of_the_past() {
    let bed = Bed::shared();
    let zk = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    let node = bed.folder(Kind::Mutex, "a") + "/held";
    let mut holder = claim(&zk, "a");
    let before = granted(holder.attempt(Wait::Queue).await).token;
    admin.delete(&node).await;
    let again = granted(holder.attempt(Wait::Queue).await).token;
    assert!(again > before, "a grant without a node");
    assert_eq!(again.get(), admin.created(&node).await);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

/// The reverse case: after the prefix was deleted under a locker without queues, clients with
/// queues come first.
#[tokio::test]
async fn c1_c5_no_client_is_granted_beside_an_earlier_queue() {
    let bed = Bed::shared();
    let unfair = bed.connect(QUERY).await;
    let admin = bed.admin().await;
    admin.delete_all(&format!("/{}", bed.prefix)).await;
    let fair = bed.connect("fair=true").await;
    let mut holder = claim(&fair, "a");
    granted(holder.attempt(Wait::Queue).await);
    let folder = bed.folder(Kind::Mutex, "a");
    for wait in [Wait::Queue, Wait::No] {
        let error = claim(&unfair, "a").attempt(wait).await.expect_err("two hold it");
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        assert!(!error.is_outcome_unknown(), "{error}");
        assert_eq!(admin.children(&folder).await.len(), 1, "C5: only the queue is left");
    }
    assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}
