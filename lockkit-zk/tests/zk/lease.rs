//! From when a lease counts, and on which sessions nothing may be taken.

use std::time::Duration;

use lockkit_core::{
    Clock, Kind, Tick,
    spi::{Backend as _, Claim, Lease, Pulse, Wait},
};
use tokio::time::{sleep, timeout};

use crate::support::*;

/// Heartbeats of a session this long confirm nothing within a test.
const LONG: &str = "session_timeout=60s";
/// For as long as this, replies are held back.
const HELD: Duration = Duration::from_millis(300);

fn proven(lease: Lease) -> (Tick, Duration) {
    let Lease::Proven { at, lasts } = lease else { panic!("{lease:?}") };
    (at, lasts)
}

async fn alive(claim: &mut Box<dyn Claim>) -> Lease {
    match persistently(async || claim.keep_alive().await).await {
        Pulse::Alive(lease) => lease,
        lost @ Pulse::Lost(_) => panic!("{lost:?}"),
    }
}

#[tokio::test]
async fn c3_a_lease_counts_from_before_the_session_was_asked_for() {
    let bed = Bed::shared();
    let proxy = lockkit_conformance::proxy::Proxy::start(bed.server.addr()).await.unwrap();
    proxy.set(|toxics| toxics.down.hold = true);
    let url = bed.url_at(proxy.addr(), LONG);
    let held_back = async {
        sleep(HELD).await;
        let asked_before = Clock::Boot.now();
        proxy.heal();
        asked_before
    };
    let (zk, asked_before) = tokio::join!(connect(&url), held_back);
    let zk = zk.unwrap();
    let mut holder = claim(&zk, "a");
    let (at, lasts) = proven(granted(holder.attempt(Wait::Queue).await).lease);
    assert!(at <= asked_before, "{:?} too late", asked_before.until(at));
    assert_eq!(lasts, Duration::from_secs(60));
    let (at, _) = proven(alive(&mut holder).await);
    assert!(at <= asked_before, "an answered read proves nothing: {:?} too late", asked_before.until(at));
    // A clock that proofs are not told on gets what is left, and not all of it.
    let mut spec = spec("b");
    spec.clock = Clock::Tokio;
    let mut other = zk.claim(spec).unwrap();
    let Lease::For(left) = granted(other.attempt(Wait::Queue).await).lease else { panic!("no duration") };
    assert!(left <= lasts - asked_before.until(Clock::Boot.now()), "{left:?}");
}

#[tokio::test]
async fn c3_a_new_connection_counts_from_before_the_old_one_was_lost() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(LONG).await;
    let (mut holder, mut other) = (claim(&zk, "a"), claim(&zk, "b"));
    let (before, _) = proven(granted(holder.attempt(Wait::Queue).await).lease);
    granted(other.attempt(Wait::Queue).await);
    // The server takes the session up again, and the client does not hear of it for a while.
    proxy.set(|toxics| toxics.down.hold = true);
    proxy.reset_all();
    sleep(HELD).await;
    let asked_before = Clock::Boot.now();
    // Gives the session something to do, and so another look at its state.
    drop(other);
    sleep(HELD).await;
    proxy.heal();
    // The first heartbeat on the new connection confirms it.
    let mut at = Tick::NEVER;
    until("the new connection counts", async || {
        at = proven(alive(&mut holder).await).0;
        at > before
    })
    .await;
    assert!(at <= asked_before, "{:?} too late", asked_before.until(at));
}

#[tokio::test]
async fn c8_c10_a_hardly_proven_session_renews_nothing_and_grants_only_what_has_a_third_left() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("session_timeout=6s").await;
    let steady = bed.connect("").await;
    let (mut holder, mut waiter) = (claim(&steady, "a"), claim(&zk, "a"));
    let mut own = claim(&zk, "b");
    granted(holder.attempt(Wait::Queue).await);
    granted(own.attempt(Wait::Queue).await);
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    holder.release().await.unwrap();
    // Each heartbeat is answered, so the session lives, and too late to prove it for long: a fifth of the timeout after it
    // was sent.
    proxy.set(|toxics| toxics.down.delay = Duration::from_millis(1_200));
    sleep(Duration::from_millis(4_700)).await;
    let error = own.keep_alive().await.unwrap_err();
    assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}");
    let refused = claim(&zk, "c").attempt(Wait::Queue).await.unwrap_err();
    for error in [error, refused] {
        assert!(error.to_string().contains("heartbeats are answered, but the last one took "), "{error}");
    }
    let healed = async {
        sleep(HELD).await;
        proxy.heal();
    };
    let asked = Clock::Boot.now();
    let granting = persistently(async || waiter.attempt(Wait::Queue).await);
    let (grant, ()) = tokio::join!(granting, healed);
    let (at, lasts) = proven(granted(Ok(grant)).lease);
    // What went by since is a busy machine's. Of what was proven when it asked, less than a third was left.
    let left = asked.until(at.after(lasts));
    assert!(left >= lasts / 3, "{left:?}");
}

/// Nobody asks anything on the session, so nobody but its state tells that it is over.
#[tokio::test]
async fn c8_an_attempt_on_an_idle_session_that_has_expired_ends_and_the_next_one_succeeds() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("session_timeout=600ms").await;
    let (admin, folder) = (bed.admin().await, bed.folder(Kind::Mutex, "a"));
    let mut old = claim(&zk, "a");
    granted(old.attempt(Wait::Queue).await);
    proxy.set(|toxics| toxics.refuse = true);
    proxy.reset_all();
    until("the session expires", async || admin.children(&folder).await.is_empty()).await;
    let mut next = claim(&zk, "a");
    let (attempt, ()) = tokio::join!(timeout(SOON, next.attempt(Wait::Queue)), async { proxy.heal() });
    let error = attempt.expect("it waits for a session that is over").unwrap_err();
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
    granted(timeout(SOON, next.attempt(Wait::Queue)).await.expect("no new session"));
}
