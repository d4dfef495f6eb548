//! Tests connections that break, and servers that forget or vanish.

use std::{
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use lockkit_core::{
    ErrorKind,
    spi::{Attempt, Backend as _, Claim, LossReason, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;
use tokio::{task::JoinSet, time::timeout};

use crate::{proxy::Proxy, support::*};

/// Renews. One unknown outcome is allowed, and must heal.
async fn alive(claim: &mut Box<dyn Claim>) -> RenewalOutcome {
    match claim.renew(None).await {
        Err(error) => {
            assert!(error.is_temporary() && error.is_outcome_unknown(), "{error}");
            claim.renew(None).await.unwrap()
        }
        Ok(outcome) => outcome,
    }
}

#[tokio::test]
async fn c5_a_forgotten_script_costs_one_request_more() {
    let store = Store::start().await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    store.admin.ask::<()>(&["SCRIPT", "FLUSH"]).await;
    store.admin.reset_calls().await;
    let (mut waiter, signal) = store.waiter("a");
    // This also holds where the request follows a SUBSCRIBE.
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    assert_eq!(store.admin.calls("eval").await, 1);
    for expected in [2, 2] {
        assert!(matches!(holder.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert_eq!(store.admin.calls("eval").await, expected);
    }
    store.admin.ask::<()>(&["SCRIPT", "FLUSH"]).await;
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    signal.heard().await;
    granted(waiter.attempt(Wait::Queue).await);
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    assert_eq!(store.admin.calls("eval").await, 4);
}

#[tokio::test]
async fn c5_a_killed_connection_causes_one_unknown_outcome_and_heals() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    let token = granted(claim.attempt(Wait::No).await).token;
    kill_clients(&store).await;
    assert!(matches!(alive(&mut claim).await, RenewalOutcome::Alive(_)));
    kill_clients(&store).await;
    assert!(matches!(alive(&mut claim).await, RenewalOutcome::Alive(_)));
    let seen = store.redis.inspect(&mutex("a")).await.unwrap();
    assert_eq!(seen.holders[0].token, Some(token));
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c8_a_broken_connection_makes_waiters_ask_and_subscribe_again() {
    let store = Store::start().await;
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let (mut claim, signal) = store.waiter("a");
        busy(claim.attempt(Wait::Queue).await);
        waiters.push((claim, signal));
    }
    for _ in 0..3 {
        kill_clients(&store).await;
        for (claim, signal) in &mut waiters {
            signal.heard().await;
            assert!(busy(claim.attempt(Wait::Queue).await).0);
        }
    }
    let before: Vec<_> = waiters.iter().map(|(_, signal)| signal.wakes()).collect();
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    waiters[0].1.heard().await;
    store.settle().await;
    let after: Vec<_> = waiters.iter().map(|(_, signal)| signal.wakes()).collect();
    assert_eq!(after, [before[0] + 1, before[1], before[2]]);
}

/// Only wake-ups and errors make a waiter look again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_no_wake_up_is_lost_when_connections_break_all_the_time() {
    let store = Arc::new(Store::start().await);
    let holders = Arc::new(AtomicUsize::new(0));
    let releases = Arc::new(Mutex::new(JoinSet::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = Arc::clone(&store);
        let holders = Arc::clone(&holders);
        let releases = Arc::clone(&releases);
        tasks.spawn(async move {
            let mut last = 0;
            for round in 0..100 {
                let (mut claim, signal) = waiter_for(&store, spec_for("a", TTL, WINDOW));
                let grant = loop {
                    match bounded(claim.attempt(Wait::Queue)).await {
                        Ok(Attempt::Granted(grant)) => break grant,
                        Ok(Attempt::Busy { .. }) => signal.heard().await,
                        Err(error) => assert!(error.is_temporary(), "{error}"),
                    }
                };
                assert!(grant.token.get() > last);
                last = grant.token.get();
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                if round % 8 == 0 {
                    kill_clients(&store).await;
                }
                tokio::task::yield_now().await;
                holders.fetch_sub(1, Ordering::SeqCst);
                if let Err(error) = bounded(claim.release()).await {
                    assert!(error.is_temporary(), "{error}");
                    // The release is repeated until no request can arrive any more that was on its
                    // way when the connection broke.
                    releases
                        .lock()
                        .unwrap()
                        .spawn(async move { finally_released(&mut claim).await });
                }
            }
        });
    }
    tasks.join_all().await;
    let releases = mem::take(&mut *releases.lock().unwrap());
    releases.join_all().await;
    store.settle().await;
    assert!(store.admin.channels().await.is_empty());
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

#[tokio::test]
async fn a_connection_is_opened_once_for_all_callers() {
    let store = Store::start().await;
    let mut claims: Vec<_> = (0..32).map(|n| store.claim(&n.to_string())).collect();
    for claim in &mut claims {
        granted(claim.attempt(Wait::No).await);
    }
    // The waiter hears of the end of the connection. From then on, no claim tries the old one.
    let (mut waiter, signal) = store.waiter("0");
    busy(waiter.attempt(Wait::Queue).await);
    kill_clients(&store).await;
    signal.heard().await;
    let before = connections_made(&store).await;
    let mut renewals = JoinSet::new();
    for mut claim in claims {
        renewals.spawn(async move { claim.renew(None).await.unwrap() });
    }
    assert!(
        renewals.join_all().await.iter().all(|outcome| matches!(outcome, RenewalOutcome::Alive(_)))
    );
    assert_eq!(connections_made(&store).await, before + 1);
}

#[tokio::test]
async fn c5_a_stopped_server_is_unavailable_and_its_return_is_noticed() {
    let mut store = Store::start().await;
    let mut claim = store.claim("a");
    let first = granted(claim.attempt(Wait::No).await);
    let (mut waiter, signal) = store.waiter("a");
    busy(waiter.attempt(Wait::Queue).await);
    store.server.kill().unwrap();
    signal.heard().await;
    // No attempt was sent, so the outcome is known.
    let error = waiter.attempt(Wait::Queue).await.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, false));
    assert!(error.to_string().contains("no server listens there"), "{error}");
    store.server.restart().unwrap();
    let second = granted(waiter.attempt(Wait::Queue).await);
    assert!(second.token > first.token);
    assert_eq!(claim.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn a_closed_backend_says_so_and_leaves_no_connection() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    granted(claim.attempt(Wait::No).await);
    store.redis.close().await.unwrap();
    assert_eq!(claim.release().await.unwrap_err().kind(), ErrorKind::Closed);
    only_the_admin_is_connected(&store).await;
}

#[tokio::test]
async fn a_connection_that_opens_while_the_backend_is_closed_is_dropped() {
    let store = Store::start().await;
    abandon_the_next_connection(&store).await;
    let name = mutex("a");
    let close = async {
        store.redis.close().await.unwrap();
        store.server.resume().unwrap();
    };
    let (seen, ()) = tokio::join!(store.redis.inspect(&name), close);
    assert_eq!(seen.unwrap_err().kind(), ErrorKind::Closed);
    only_the_admin_is_connected(&store).await;
}

async fn only_the_admin_is_connected(store: &Store) {
    let clients = async || store.admin.ask::<String>(&["CLIENT", "LIST"]).await.lines().count();
    timeout(SOON, async { while clients().await > 1 {} }).await.unwrap();
}

#[tokio::test]
async fn c5_a_reply_lost_with_its_connection_is_unknown_and_can_be_asked_for_or_undone() {
    let store = Store::start_with_clock().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url("")).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    let lost = async |claim: &mut Box<dyn Claim>| {
        proxy.cut.store(true, Ordering::SeqCst);
        let error = claim.attempt(Wait::Queue).await.unwrap_err();
        assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}");
        store.admin.ask::<String>(&["GET", &lock_key("a")]).await
    };
    // The first release frees the lock. A later one knows whether a request can still arrive behind
    // it.
    let undone = async |claim: &mut Box<dyn Claim>| {
        assert!(claim.release().await.unwrap_err().is_outcome_unknown());
        assert_eq!(store.admin.keys().await, [counter_key()]);
        store.pass(OP_TIMEOUT);
        assert_eq!(finally_released(claim).await, Released::NotHeld);
        // With this attempt, the claim learns the present time of the server.
        granted(claim.attempt(Wait::Queue).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    };
    let lock = lost(&mut claim).await;
    let token = granted(claim.attempt(Wait::Queue).await).token;
    assert!(lock.starts_with(&format!("{token}:")));
    undone(&mut claim).await;

    lost(&mut claim).await;
    undone(&mut claim).await;

    granted(claim.attempt(Wait::Queue).await);
    proxy.cut.store(true, Ordering::SeqCst);
    assert!(claim.release().await.unwrap_err().is_outcome_unknown());
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn c5_a_release_is_final_only_when_nothing_of_its_owner_can_arrive_any_more() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url(TRUSTING)).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    proxy.hold.store(true, Ordering::SeqCst);
    assert!(timeout(TRUST, claim.attempt(Wait::Queue)).await.is_err());

    // The client gives up the silent connection. The release uses another one, and can't know which
    // requests still come.
    let error = claim.release().await.unwrap_err();
    assert!(error.is_outcome_unknown() && error.is_temporary(), "{error}");
    assert!(store.admin.keys().await.is_empty());
    proxy.let_go.notify_one();
    let applied = async || store.admin.ask::<u64>(&["EXISTS", &lock_key("a")]).await == 1;
    timeout(SOON, async { while !applied().await {} }).await.unwrap();
    assert!(claim.release().await.is_err());
    assert!(!applied().await);
    assert_eq!(finally_released(&mut claim).await, Released::NotHeld);
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn c5_a_grant_does_not_settle_requests_on_an_earlier_connection() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url(TRUSTING)).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    proxy.hold.store(true, Ordering::SeqCst);
    assert!(timeout(TRUST, claim.attempt(Wait::Queue)).await.is_err());
    granted(claim.attempt(Wait::Queue).await);
    assert!(claim.release().await.unwrap_err().is_outcome_unknown());
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

#[tokio::test]
async fn c6_a_request_that_arrives_after_the_grant_leaves_no_place_in_the_queue() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url(TRUSTING)).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    proxy.hold.store(true, Ordering::SeqCst);
    assert!(timeout(TRUST, claim.attempt(Wait::Queue)).await.is_err());
    granted(claim.attempt(Wait::Queue).await);
    assert!(claim.release().await.unwrap_err().is_outcome_unknown());
    let mut next = holder(&store, "a").await;
    // The request that was held back finds the lock taken, and queues.
    proxy.let_go.notify_one();
    let queued = async || store.admin.ask::<u64>(&["EXISTS", &queue_key("a")]).await == 1;
    timeout(SOON, async { while !queued().await {} }).await.unwrap();
    assert_eq!(finally_released(&mut claim).await, Released::NotHeld);
    assert!(!queued().await);
    assert_eq!(next.release().await.unwrap(), Released::Freed);
    assert_clean(&store).await;
}

/// Leaves the backend without a connection. The next one is half made, and no caller continues it.
async fn abandon_the_next_connection(store: &Store) {
    let (mut waiter, _) = lose_the_connection(store).await;
    store.server.pause().unwrap();
    assert!(timeout(MOMENT, waiter.attempt(Wait::Queue)).await.is_err());
}

#[tokio::test]
async fn c5_the_time_that_connecting_takes_counts() {
    let store = Store::start().await;
    abandon_the_next_connection(&store).await;
    let op_timeout = Duration::from_secs(1);
    let mut claim = store.redis.claim(spec_for("a", TTL, op_timeout)).unwrap();
    let resume = async {
        // The new connection's idea of the server's time may be wrong by a round trip, so the test
        // waits for so much longer.
        tokio::time::sleep(op_timeout + TRUST).await;
        store.server.resume().unwrap();
    };
    let (attempt, ()) = tokio::join!(claim.attempt(Wait::No), resume);
    let error = attempt.unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, false));
    assert_eq!(store.admin.ask::<u64>(&["EXISTS", &lock_key("a")]).await, 0);
}

#[tokio::test]
async fn an_abandoned_connection_attempt_is_not_continued_for_ever() {
    let store = Store::start_with(&[], TRUSTING).await;
    abandon_the_next_connection(&store).await;
    // The time of the connection has passed, though no caller has looked.
    tokio::time::sleep(TRUST + PERIOD).await;
    store.server.resume().unwrap();
    granted(store.claim("a").attempt(Wait::No).await);
}

#[tokio::test]
async fn c8_waiters_on_a_connection_that_fell_silent_move_to_a_new_one() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url(TRUSTING)).await.unwrap();
    let mut holder = store.claim("a");
    granted(holder.attempt(Wait::No).await);
    let waiter = |signal: &Arc<WakeSignal>| {
        let mut spec = spec("a");
        spec.wake = lockkit_core::spi::Wake::to(signal);
        redis.claim(spec).unwrap()
    };
    let bells = [Arc::new(WakeSignal::default()), Arc::new(WakeSignal::default())];
    let mut first = waiter(&bells[0]);
    let mut second = waiter(&bells[1]);
    busy(first.attempt(Wait::Queue).await);
    busy(second.attempt(Wait::Queue).await);
    proxy.hold.store(true, Ordering::SeqCst);
    tokio::time::sleep(PERIOD).await;
    let error =
        timeout(SOON, first.attempt(Wait::Queue)).await.expect("trusts it for ever").unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("connect_timeout"), "{error}");
    // The next attempt uses a new connection, and the other waiters are woken.
    assert!(matches!(
        first.attempt(Wait::Queue).await.unwrap(),
        Attempt::Busy { queued: true, .. }
    ));
    bells[1].heard().await;
    busy(second.attempt(Wait::Queue).await);
    bells[0].heard().await;
    busy(first.attempt(Wait::Queue).await);
    // They kept their places, and get messages on the new connection.
    given_up(holder.release()).await;
    bells[0].heard().await;
    granted(first.attempt(Wait::Queue).await);
    given_up(first.release()).await;
    lock(&mut second, &bells[1]).await;
}
