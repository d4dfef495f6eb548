//! Waiters for permits, who are granted in a row: the one behind hears of it.

use std::time::Duration;

use lockkit_core::{
    Kind,
    spi::{Attempt, Claim, Released, Wait},
};
use tokio::time::timeout;

use crate::support::*;

/// How often the driver asks a store that says nothing.
const POLL: Duration = Duration::from_millis(200);

/// Asks as the driver does: once woken, or after a while.
async fn polled(claim: &mut Box<dyn Claim>) {
    let waiting = async {
        while let Attempt::Busy { .. } = claim.attempt(Wait::Queue).await.unwrap() {
            // Nothing said: the poll must do.
            let _ = timeout(POLL, claim.changed()).await;
        }
    };
    timeout(SOON, waiting).await.expect("a permit is free, and its waiter sleeps");
}

/// One that looked before the release is granted only as it sets its watch. An implementation that
/// tells its successor only of grants that it waited for, or whose poll looks at the predecessor's
/// presence alone, forgets the one behind.
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
        // It was sent together with the look, whose answer is held back: the first does not watch
        // yet.
        until("the first stands in the queue", async || admin.children(&folder).await.len() == 2)
            .await;
        assert!(busy(second.attempt(Wait::Queue).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        proxy.heal();
    };
    let (attempt, ()) = tokio::join!(first.attempt(Wait::Queue), released);
    granted(attempt);
    // Nobody polls here.
    woken(&mut second).await;
    lock(&mut second).await;
    drop((first, second));
    bed.assert_clean().await;
}

/// The first list of a waiter grants it, and shows one behind it that took it for a waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_waiter_whose_first_look_grants_tells_the_one_behind_it() {
    let bed = Bed::shared();
    let (slow, proxy) = bed.behind_proxy("").await;
    let fast = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Semaphore, "a");
    let mut holder = permits(&fast, "a", 2, 2);
    granted(holder.attempt(Wait::Queue).await);
    let mut first = permits(&slow, "a", 1, 2);
    let mut second = permits(&fast, "a", 1, 2);
    // Its node is made, and the answer, the list with it, is lost: the next look is its first.
    let behind = async {
        until("the first stands in the queue", async || admin.children(&folder).await.len() == 2)
            .await;
        assert!(busy(second.attempt(Wait::Queue).await).0);
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
    };
    unanswered(&proxy, first.attempt(Wait::Queue), behind).await;
    granted(Ok(persistently(async || first.attempt(Wait::Queue).await).await));
    // Nobody polls here.
    woken(&mut second).await;
    lock(&mut second).await;
    drop((first, second));
    bed.assert_clean().await;
}

/// A poll that looks at the predecessor's presence alone never finds out that it holds a permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_grant_that_nobody_was_told_of_is_found_by_a_poll() {
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
    // Its look reaches the server, and what it says to the one behind after that does not.
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
