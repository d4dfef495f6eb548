//! The start of a lease, and the sessions that accept no claims.

use std::time::Duration;

use lockkit_core::{
    Clock, Kind, Tick,
    spi::{Backend as _, Claim, Lease, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;
use lockkit_zk::zookeeper_client::{Acl, AuthId, Permission};
use tokio::time::{sleep, timeout};

use crate::support::*;

impl Bed {
    /// Allows the sessions to write to the nodes of their heartbeats, or forbids it.
    async fn allow_heartbeats(&self, admin: &Admin, allowed: bool) {
        let permission =
            if allowed { Permission::ALL } else { Permission::READ | Permission::ADMIN };
        let acls = [Acl::new(permission, AuthId::anyone())];
        let folder = format!("/{}/session", self.prefix);
        for node in admin.children(&folder).await {
            admin.0.set_acl(&format!("{folder}/{node}"), &acls, None).await.unwrap();
        }
    }
}

/// The heartbeats of a session this long confirm nothing within a test. It is the default of the
/// tests.
const LONG: Duration = Duration::from_secs(600);
/// How long replies are held back.
const HELD: Duration = Duration::from_millis(300);

fn proven(lease: Lease) -> (Tick, Duration) {
    let Lease::Proven { at, lasts } = lease else { panic!("{lease:?}") };
    (at, lasts)
}

async fn alive(claim: &mut Box<dyn Claim>) -> Lease {
    match persistently(async || claim.renew(None).await).await {
        RenewalOutcome::Alive(lease) => lease,
        lost @ RenewalOutcome::Lost(_) => panic!("{lost:?}"),
    }
}

#[tokio::test]
async fn c3_a_lease_counts_from_before_the_session_was_asked_for() {
    let bed = Bed::shared();
    let proxy = lockkit_conformance::proxy::Proxy::start(bed.server.addr()).await.unwrap();
    let url = bed.url_at(proxy.addr(), "");
    let (zk, asked_before) = persistently(async || {
        proxy.set(|toxics| toxics.down.hold = true);
        let held_back = async {
            sleep(HELD).await;
            let asked_before = Clock::Boot.now();
            proxy.heal();
            asked_before
        };
        let (zk, asked_before) = tokio::join!(connect(&url), held_back);
        Ok((zk?, asked_before))
    })
    .await;
    let mut holder = claim(&zk, "a");
    let (at, lasts) = proven(granted(holder.attempt(Wait::Queue).await).lease);
    assert!(at <= asked_before, "{:?} too late", asked_before.until(at));
    assert_eq!(lasts, LONG);
    let (at, _) = proven(alive(&mut holder).await);
    assert!(
        at <= asked_before,
        "an answered read proves nothing: {:?} too late",
        asked_before.until(at)
    );
    // A clock without proofs gets the remaining part of the lease, not all of it.
    let mut spec = spec("b");
    spec.clock = Clock::Tokio;
    let mut other = zk.claim(spec).unwrap();
    let Lease::For(left) = granted(other.attempt(Wait::Queue).await).lease else {
        panic!("no duration")
    };
    assert!(left <= lasts - asked_before.until(Clock::Boot.now()), "{left:?}");
}

#[tokio::test]
async fn c3_a_new_connection_counts_from_before_the_old_one_was_lost() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy("").await;
    let mut holder = claim(&zk, "a");
    let mut other = claim(&zk, "b");
    let (before, _) = proven(granted(holder.attempt(Wait::Queue).await).lease);
    granted(other.attempt(Wait::Queue).await);
    // The server resumes the session, and for a while the client does not learn of it.
    proxy.set(|toxics| toxics.down.hold = true);
    let connected = bed.connected();
    proxy.reset_all();
    until("there is another connection", async || {
        let now = bed.connected();
        now.len() == 1 && now != connected
    })
    .await;
    let asked_before = Clock::Boot.now();
    // Gives the session work, and so another look at its state.
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

/// Heartbeats are refused, and other requests are answered: the session lives without a proof.
#[tokio::test]
async fn c5_c8_c10_a_hardly_proven_session_renews_nothing_and_grants_only_what_has_a_third_left() {
    let bed = Bed::steady();
    let admin = bed.admin().await;
    let zk = bed.connect(&session(24)).await;
    let steady = bed.connect("").await;
    let mut holder = claim(&steady, "a");
    let mut hasty = spec("a");
    hasty.op_timeout = HELD;
    let mut waiter = zk.claim(hasty).unwrap();
    let mut own = claim(&zk, "b");
    granted(holder.attempt(Wait::Queue).await);
    granted(own.attempt(Wait::Queue).await);
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    given_up(holder.release()).await;
    bed.allow_heartbeats(&admin, false).await;
    let mut unproven = None;
    until("the session is hardly proven", async || {
        unproven = own.renew(None).await.err();
        unproven.is_some()
    })
    .await;
    let error = unproven.unwrap();
    assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}");
    let mut hasty = spec("c");
    hasty.op_timeout = HELD;
    let refused = zk.claim(hasty).unwrap().attempt(Wait::Queue).await.unwrap_err();
    assert!(!refused.is_outcome_unknown(), "{refused}");
    let in_line = waiter.attempt(Wait::Queue).await.unwrap_err();
    assert!(in_line.is_outcome_unknown(), "C5: its node is still there: {in_line}");
    for error in [error, refused, in_line] {
        assert!(error.to_string().contains("prove the session for only "), "{error}");
    }
    let asked = Clock::Boot.now();
    bed.allow_heartbeats(&admin, true).await;
    let grant = persistently(async || waiter.attempt(Wait::Queue).await).await;
    let (at, lasts) = proven(granted(Ok(grant)).lease);
    // On a busy machine some time has passed since then. But less than a third of the proven lease
    // was left when the claim asked.
    let left = asked.until(at.after(lasts));
    assert!(left >= lasts / 3, "{left:?}");
}

/// No request is sent on the session, so only its state shows that it is over.
#[tokio::test]
async fn c8_an_attempt_on_an_idle_session_that_has_expired_ends_and_the_next_one_succeeds() {
    let bed = Bed::shared();
    let (zk, proxy) = bed.behind_proxy(&session(6)).await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut old = claim(&zk, "a");
    granted(Ok(persistently(async || old.attempt(Wait::Queue).await).await));
    proxy.set(|toxics| toxics.refuse = true);
    proxy.reset_all();
    until("the session expires", async || admin.children(&folder).await.is_empty()).await;
    let mut next = claim(&zk, "a");
    let (attempt, ()) =
        tokio::join!(timeout(SOON, next.attempt(Wait::Queue)), async { proxy.heal() });
    // If this took so long that the client has given up the session itself, there is a new session
    // at once.
    if let Err(error) = attempt.expect("it waits for a session that is over") {
        assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
    }
    granted(Ok(persistently(async || next.attempt(Wait::Queue).await).await));
}
