//! Tests that a waiter always gets an answer in the end, whatever happened to the keys that it
//! waits on.

use std::{
    net::TcpListener,
    num::NonZeroU32,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use lockkit_core::{
    ErrorKind, Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, ClaimSpec, Mode, RenewalOutcome, Wait, Wake},
};
use lockkit_fixture::RedisServer;
use lockkit_fixture::claims::given_up;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{proxy::Proxy, support::*};

/// The op_timeout of a waiter whose claim window must pass. The window is as long.
const HASTY: Duration = Duration::from_secs(6);

fn permits(count: u32, limit: u32, op_timeout: Duration) -> ClaimSpec {
    let permits = |number| NonZeroU32::new(number).unwrap();
    let mode = Mode::Permits { count: permits(count), limit: permits(limit) };
    ClaimSpec::new(
        LockName::new(Kind::Semaphore, "a").unwrap(),
        OwnerId::random(),
        mode,
        TTL,
        op_timeout,
    )
}

fn semaphore_key(part: &str) -> String {
    format!("lockkit:semaphore:{{a}}:{part}")
}

/// A hold does not need the keys of the queue.
#[tokio::test]
async fn c10_a_hold_of_any_kind_is_renewed_beside_a_foreign_queue() {
    let one = Mode::Permits { count: NonZeroU32::MIN, limit: NonZeroU32::MIN };
    let modes =
        [(Kind::Mutex, Mode::Exclusive), (Kind::RwLock, Mode::Shared), (Kind::Semaphore, one)];
    for (kind, mode) in modes {
        let store = Store::start().await;
        let name = LockName::new(kind, "a").unwrap();
        let spec = ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT);
        let mut holder = store.redis.claim(spec).unwrap();
        granted(holder.attempt(Wait::No).await);
        for part in ["queue", "live"] {
            store
                .admin
                .ask::<()>(&["SET", &format!("lockkit:{}:{{a}}:{part}", kind.as_str()), "x"])
                .await;
        }
        let outcome = holder.renew(None).await;
        assert!(matches!(outcome, Ok(RenewalOutcome::Alive(_))), "{kind:?}: {outcome:?}");
    }
}

/// The keys of the grants must not lapse with the short lease of the hasty waiter, because the
/// patient waiter needs them.
#[tokio::test]
async fn c8_a_patient_waiter_outlives_a_hasty_one_that_was_handed_the_permits() {
    let store = Store::start().await;
    let other = connect(&store.server.url()).await.unwrap();
    let mut holder = store.redis.claim(permits(1, 1, OP_TIMEOUT)).unwrap();
    granted(holder.attempt(Wait::No).await);
    let mut hasty = other.claim(permits(1, 1, HASTY)).unwrap();
    assert!(busy(hasty.attempt(Wait::Queue).await).0);
    let (mut patient, signal) = waiter_for(&store, permits(1, 1, OP_TIMEOUT));
    assert!(busy(patient.attempt(Wait::Queue).await).0);
    given_up(holder.release()).await;
    // The hasty waiter gets a message, and never looks.
    wait_for(&mut patient, &signal).await;
}

#[tokio::test]
async fn c8_a_waiter_outlives_the_keys_of_its_queue() {
    for lost in ["queue", "live"] {
        let store = Store::start().await;
        let mut holder = holder(&store, "a").await;
        let (mut waiter, signal) = store.waiter("a");
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        store.admin.ask::<()>(&["DEL", &format!("lockkit:mutex:{{a}}:{lost}")]).await;
        given_up(holder.release()).await;
        wait_for(&mut waiter, &signal).await;
    }
    for lost in ["queue", "live", "grants", "holders"] {
        let store = Store::start().await;
        let mut holder = store.redis.claim(permits(2, 2, OP_TIMEOUT)).unwrap();
        granted(holder.attempt(Wait::No).await);
        let (mut waiter, signal) = waiter_for(&store, permits(1, 2, OP_TIMEOUT));
        assert!(busy(waiter.attempt(Wait::Queue).await).0);
        store.admin.ask::<()>(&["DEL", &semaphore_key(lost)]).await;
        given_up(holder.release()).await;
        wait_for(&mut waiter, &signal).await;
    }
}

#[tokio::test]
async fn c13_a_waiter_gets_an_error_when_no_tokens_are_left() {
    let store = Store::start().await;
    let specs = || [spec("a"), permits(1, 1, OP_TIMEOUT)];
    for (held, waits) in specs().into_iter().zip(specs()) {
        let mut holder = store.redis.claim(held).unwrap();
        granted(holder.attempt(Wait::No).await);
        let (mut claim, signal) = waiter_for(&store, waits);
        assert!(busy(claim.attempt(Wait::Queue).await).0);
        store.admin.ask::<()>(&["SET", &counter_key(), "9007199254740991"]).await;
        given_up(holder.release()).await;
        let told = async {
            loop {
                match claim.attempt(Wait::Queue).await {
                    Err(error) => return error,
                    Ok(Attempt::Busy { retry_after, .. }) => {
                        let _ = timeout(retry_after.unwrap(), signal.heard()).await;
                    }
                    granted => panic!("{granted:?}"),
                }
            }
        };
        let error = timeout(SOON, told).await.expect("was told nothing");
        assert_eq!(error.kind(), ErrorKind::Unexpected, "{error}");
        assert!(error.to_string().contains("2^53"), "{error}");
        store.admin.ask::<()>(&["DEL", &counter_key()]).await;
    }
}

#[tokio::test]
async fn c13_a_silent_cluster_is_unavailable() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("redis+cluster://127.0.0.1:{port}/?connect_timeout=50ms");
    let error = timeout(SOON, connect(&url)).await.expect("waits for ever").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// The waiter that asks first keeps all waiters alive. It may be very patient.
#[tokio::test]
async fn c8_a_waiter_is_not_held_up_by_a_more_patient_one_on_a_dead_connection() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::to(server.port()).await;
    let redis = connect(&proxy.url(TRUSTING)).await.unwrap();
    let mut holder = redis.claim(spec("a")).unwrap();
    granted(holder.attempt(Wait::No).await);
    let long = SOON * 2;
    let mut waiters = Vec::new();
    for op_timeout in [long, HASTY] {
        let mut claim = redis.claim(spec_for("a", 2 * long, op_timeout)).unwrap();
        assert!(busy(claim.attempt(Wait::Queue).await).0);
        waiters.push((claim, op_timeout));
    }
    proxy.hold.store(true, Ordering::SeqCst);
    server.ask(["DEL", &lock_key("a")]).unwrap();
    let mut waiting = JoinSet::new();
    for (mut claim, op_timeout) in waiters {
        waiting.spawn(async move {
            loop {
                match timeout(op_timeout, claim.attempt(Wait::Queue)).await {
                    Ok(Ok(Attempt::Granted(_))) => return,
                    Ok(Ok(Attempt::Busy { retry_after, .. })) => sleep(retry_after.unwrap()).await,
                    Ok(Err(error)) => assert!(error.is_temporary(), "{error}"),
                    Err(_) => {}
                }
            }
        });
    }
    // One of the two gets the lock, and does not give it back.
    timeout(SOON, waiting.join_next()).await.expect("nobody is granted the lock").unwrap().unwrap();
}

/// One request for each name, one after the other, would take more than a minute.
#[tokio::test]
async fn c8_waiters_beside_a_broken_name_are_kept_alive_together() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url("?connect_timeout=60s")).await.unwrap();
    let names: Vec<_> = (0..64).map(|number| format!("name {number}")).collect();
    let mut waiters = Vec::new();
    for name in &names {
        store.admin.ask::<()>(&["SET", &lock_key(name), "somebody else"]).await;
        let mut claim = redis.claim(spec(name)).unwrap();
        assert!(busy(claim.attempt(Wait::Queue).await).0);
        waiters.push(claim);
    }
    store.admin.ask::<()>(&["DEL", &live_key(&names[0])]).await;
    store.admin.ask::<()>(&["SET", &live_key(&names[0]), "no zset"]).await;
    // All names are due by then.
    sleep(PERIOD * 2).await;
    store.admin.reset_calls().await;
    proxy.slow.store(1000, Ordering::SeqCst);
    let attempt = timeout(SOON / 2, waiters[1].attempt(Wait::Queue)).await;
    assert!(busy(attempt.expect("the rooms are refreshed one after the other")).0);
    assert_eq!(store.admin.requests().await, 1 + 64);
    proxy.slow.store(0, Ordering::SeqCst);
    let error = waiters[0].attempt(Wait::Queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
}

#[tokio::test]
async fn c8_a_very_patient_waiter_polls_as_often_as_others() {
    let store = Store::start().await;
    let other = connect(&store.server.url()).await.unwrap();
    let minute = Duration::from_secs(60);
    let mut holder = holder(&store, "a").await;
    let mut hasty = other.claim(spec_for("a", TTL, HASTY)).unwrap();
    assert!(busy(hasty.attempt(Wait::Queue).await).0);
    let (mut patient, signal) = waiter_for(&store, spec_for("a", 5 * minute, 2 * minute));
    assert!(busy(patient.attempt(Wait::Queue).await).0);
    given_up(holder.release()).await;
    // The hasty waiter gets a message, and never looks.
    wait_for(&mut patient, &signal).await;
}

#[tokio::test]
async fn c9_a_very_patient_waiter_that_dies_keeps_the_lock_for_ten_seconds_at_most() {
    let store = Store::start().await;
    let minute = Duration::from_secs(60);
    let mut holder = holder(&store, "a").await;
    let (mut patient, signal) = waiter_for(&store, spec_for("a", 10 * minute, 2 * minute));
    assert!(busy(patient.attempt(Wait::Queue).await).0);
    given_up(holder.release()).await;
    // The waiter gets a message, and never looks.
    signal.heard().await;
    let left: u64 = store.admin.ask(&["PTTL", &lock_key("a")]).await;
    assert!(left <= 10_000, "{left} ms");
}

/// A waiter that can't be reached is passed over. That must end, even if other waiters keep coming.
#[tokio::test]
async fn c12_a_waiter_that_may_have_lost_its_connection_is_not_passed_over_for_ever() {
    let store = Store::start().await;
    store.admin.ask::<()>(&["ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all"]).await;
    let port = store.server.port();
    let redis = connect(&format!("redis://u:p@127.0.0.1:{port}/")).await.unwrap();
    let mut holder = holder(&store, "a").await;
    let signal = Arc::new(WakeSignal::default());
    let mut spec = spec("a");
    spec.wake = Wake::to(&signal);
    let mut unlucky = redis.claim(spec).unwrap();
    assert!(busy(unlucky.attempt(Wait::Queue).await).0);
    store.admin.ask::<()>(&["ACL", "SETUSER", "u", "resetchannels"]).await;
    let mut lucky = queue(&store, "a", 2).await;
    let going_round = async {
        loop {
            given_up(holder.release()).await;
            let (mut next, signal) = lucky.remove(0);
            wait_for_long(&mut next, &signal).await;
            lucky.extend(queue(&store, "a", 1).await);
            holder = next;
        }
    };
    tokio::select! {
        () = going_round => {}
        _ = wait_for(&mut unlucky, &signal) => {}
    }
}
