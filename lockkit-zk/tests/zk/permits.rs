//! Waiters for permits that are granted in a row: each wakes the one behind it.

use std::time::Duration;

use lockkit_core::{
    Kind,
    spi::{Attempt, Claim, Released, Wait},
};
use tokio::time::timeout;

use crate::support::*;

/// How often the driver polls a store that sends no wake-up.
const POLL: Duration = Duration::from_millis(200);

/// Asks as the driver does: once woken, or after a while.
async fn polled(claim: &mut Box<dyn Claim>) {
    let waiting = async {
        while let Attempt::Busy { .. } = claim.attempt(Wait::Queue).await.unwrap() {
            // There was no wake-up, so the poll must be enough.
            let _ = timeout(POLL, claim.changed()).await;
        }
    };
    timeout(SOON, waiting).await.expect("a permit is free, and its waiter sleeps");
}

/// A waiter that read the queue before the release is granted only when it sets its watch. The test
/// catches two faults that forget the waiter behind it. One: a claim marks its node only for grants
/// that it waited for. The other: the poll checks only that the node ahead exists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_waiter_behind_one_that_was_granted_before_its_watch_gets_its_permit() {
    let bed = Bed::shared();
    let (slow, proxy) = bed.behind_proxy("").await;
    let fast = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Semaphore, "a");
    let mut holder = permits(&fast, "a", 2, 2);
    granted(holder.attempt(Wait::Queue).await);
    proxy.set(|toxics| toxics.down.hold = true);
    let mut first = permits(&slow, "a", 1, 2);
    let mut second = permits(&fast, "a", 1, 2);
    let released = async {
        // The create of its node was sent together with the list, whose answer is held back. So the
        // first waiter does not watch yet.
        until("the first stands in the queue", async || admin.children(&folder).await.len() == 2)
            .await;
        assert!(busy(second.attempt(Wait::Queue).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        proxy.heal();
    };
    let (attempt, ()) = tokio::join!(first.attempt(Wait::Queue), released);
    granted(attempt);
    // There is no poll here.
    woken(&mut second).await;
    lock(&mut second).await;
    drop((first, second));
    bed.assert_clean().await;
}

/// The first list of a waiter grants it, and shows a claim behind it that took it for a waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_waiter_that_is_granted_at_once_wakes_the_next() {
    let bed = Bed::shared();
    let (slow, proxy) = bed.behind_proxy("").await;
    let fast = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Semaphore, "a");
    let mut holder = permits(&fast, "a", 2, 2);
    granted(holder.attempt(Wait::Queue).await);
    let mut first = permits(&slow, "a", 1, 2);
    let mut second = permits(&fast, "a", 1, 2);
    // Its node is made, and the answer is lost with the list. So the next look is its first.
    let behind = async {
        until("the first stands in the queue", async || admin.children(&folder).await.len() == 2)
            .await;
        assert!(busy(second.attempt(Wait::Queue).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
    };
    unanswered(&proxy, first.attempt(Wait::Queue), behind).await;
    granted(Ok(persistently(async || first.attempt(Wait::Queue).await).await));
    // There is no poll here.
    woken(&mut second).await;
    lock(&mut second).await;
    drop((first, second));
    bed.assert_clean().await;
}

/// A poll that only checks that the node ahead exists never finds that this node holds a permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_poll_finds_a_grant_without_a_wake_up() {
    let bed = Bed::shared();
    let (slow, proxy) = bed.behind_proxy("").await;
    let fast = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Semaphore, "a");
    let mut holder = permits(&fast, "a", 2, 2);
    granted(holder.attempt(Wait::Queue).await);
    let mut first = permits(&slow, "a", 1, 2);
    let mut second = permits(&fast, "a", 1, 2);
    assert!(busy(first.attempt(Wait::Queue).await).0);
    assert!(busy(second.attempt(Wait::Queue).await).0);
    let nodes = admin.children(&folder).await;
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    woken(&mut first).await;
    // Its look reaches the server. Its later message to the claim behind it does not.
    proxy.set(|toxics| toxics.down.hold = true);
    let before = bed.received();
    let asked = async {
        until("the look has reached the server", async || bed.received() > before).await;
        proxy.set(|toxics| (toxics.down.hold, toxics.up.hold) = (false, true));
    };
    let (attempt, ()) = tokio::join!(first.attempt(Wait::Queue), asked);
    granted(attempt);
    proxy.reset_all();
    proxy.heal();
    polled(&mut second).await;
    let mark = admin.0.check_stat(&format!("{folder}/{}", nodes[1])).await.unwrap().unwrap();
    assert_eq!(mark.version, 0, "it was told after all: the test shows nothing");
    drop((first, second));
    bed.assert_clean().await;
}
