//! Tests a lock that was handed over by message. The waiter takes it without a request if its lease
//! can be proved, and with a request otherwise.

use std::time::{Duration, Instant};

use lockkit_core::{
    Clock, FencingToken, LockGuard, LockOptions, Locker, Renewal,
    spi::{Claim, Lease, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;
use lockkit_fixture::{ClockDirection, RedisServer};
use tokio::time::{sleep, timeout};

use crate::support::*;

/// A waiter that accepts a short lease.
async fn frugal(store: &Store) -> Waiter {
    let mut spec = spec("a");
    spec.short_lease = true;
    let (mut claim, signal) = waiter_for(store, spec);
    assert!(busy(claim.attempt(Wait::Queue).await).0);
    (claim, signal)
}

async fn token_of(store: &Store) -> FencingToken {
    let lock: String = store.admin.ask(&["GET", &lock_key("a")]).await;
    FencingToken::new(lock.split(':').next().unwrap().parse().unwrap())
}

/// Checks that nothing is proved: there is one request, for the token that was handed over and a
/// whole lease.
async fn assert_asks(store: &Store, claim: &mut Box<dyn Claim>) {
    let token = token_of(store).await;
    store.admin.reset_calls().await;
    let grant = granted(claim.attempt(Wait::Queue).await);
    assert_eq!(store.admin.requests().await, 1);
    assert_eq!((grant.token, lasts(grant.lease)), (token, TTL));
    assert!(ttl(&store.admin).await > TTL / 2);
}

async fn ttl(admin: &Admin) -> Duration {
    Duration::from_millis(admin.ask(&["PTTL", &lock_key("a")]).await)
}

#[tokio::test]
async fn c3_a_proved_lease_costs_no_request_and_ends_before_the_stores_does() {
    let store = Store::start().await;
    let mut proved = 0;
    for round in 0..20 {
        let mut holder = holder(&store, "a").await;
        let begun = Instant::now();
        let (mut waiter, signal) = frugal(&store).await;
        sleep(Duration::from_millis(50)).await;
        given_up(holder.release()).await;
        signal.heard().await;
        // The waiter's lease does not grow by the time before its look.
        sleep(Duration::from_millis(5 * round)).await;
        store.admin.reset_calls().await;
        let grant = granted(waiter.attempt(Wait::Queue).await);
        if begun.elapsed() >= WINDOW / 2 {
            // Too little is proved, so the waiter asks.
            given_up(waiter.release()).await;
            continue;
        }
        proved += 1;
        let left = ttl(&store.admin).await;
        let read = Clock::Boot.now();
        assert_eq!(store.admin.requests().await, 0);
        assert_eq!(grant.token, token_of(&store).await);
        let Lease::Proven { at, lasts } = grant.lease else { panic!("{:?}", grant.lease) };
        assert!(left <= WINDOW, "the store was asked for more: {left:?}");
        // The server counts whole milliseconds.
        let lapses = read.after(left + Duration::from_millis(1));
        assert!(at.after(lasts) <= lapses, "{:?} too late", lapses.until(at.after(lasts)));
        // The lease is not too short either: the time in the queue does not count.
        assert!(lasts >= WINDOW + Duration::from_millis(45), "{lasts:?}");
        assert!(matches!(waiter.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
        assert!(ttl(&store.admin).await > TTL / 2);
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
    assert!(proved > 0);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c3_nothing_is_proved_across_a_step_of_the_servers_clock() {
    let server = RedisServer::start_with_clock().unwrap();
    let store = Store::on(server, "").await;
    for direction in [ClockDirection::Forward, ClockDirection::Back] {
        let mut holder = holder(&store, "a").await;
        let (mut waiter, signal) = frugal(&store).await;
        // The step is longer than the answer and the message can take, and shorter than a waiter
        // lives.
        store.server.clock().unwrap().step(WINDOW, direction).unwrap();
        given_up(holder.release()).await;
        signal.heard().await;
        assert_asks(&store, &mut waiter).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
    assert_clean(&store).await;
}

#[tokio::test]
async fn c3_nothing_is_proved_by_an_answer_on_another_connection() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, signal) = frugal(&store).await;
    kill_clients(&store).await;
    signal.heard().await;
    // Another claim opens the next connection, on which the message comes.
    granted(store.claim("b").attempt(Wait::No).await);
    given_up(holder.release()).await;
    signal.heard().await;
    assert_asks(&store, &mut waiter).await;
}

/// A client that may publish can say that a waiter has the lock. The first renewal shows that it
/// has not.
#[tokio::test]
async fn c3_a_forged_message_is_believed_for_a_claim_window_at_most() {
    let store = Store::start().await;
    let _holder = holder(&store, "a").await;
    let (mut waiter, signal) = frugal(&store).await;
    let members: Vec<String> = store.admin.ask(&["ZRANGE", &queue_key("a"), "0", "-1"]).await;
    let owner = members[0].rsplit(':').next().unwrap();
    let now: (u64, u64) = store.admin.ask(&["TIME"]).await;
    let now = now.0 * 1_000_000 + now.1;
    let forged = format!("{owner} {now} {now} 600000");
    store.admin.ask::<()>(&["PUBLISH", &store.client_channel().await, &forged]).await;
    signal.heard().await;
    let Lease::Proven { at, lasts } = granted(waiter.attempt(Wait::Queue).await).lease else {
        panic!("asked")
    };
    let until = Clock::Boot.now().until(at.after(lasts));
    assert!(until <= WINDOW, "believed for {until:?}");
    let outcome = waiter.renew(None).await.unwrap();
    assert!(matches!(outcome, RenewalOutcome::Lost(_)), "{outcome:?}");
}

#[tokio::test]
async fn c3_a_waiter_that_asks_late_asks_for_a_whole_lease() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, signal) = frugal(&store).await;
    given_up(holder.release()).await;
    signal.heard().await;
    // Now the lock is still there, however slow the server is.
    store.admin.ask::<()>(&["EXPIRE", &lock_key("a"), "60"]).await;
    sleep(WINDOW * 3 / 5).await;
    assert_asks(&store, &mut waiter).await;
}

#[tokio::test]
async fn c1_a_waiter_that_asks_after_its_claim_window_gets_nothing() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, signal) = frugal(&store).await;
    let (mut second, other) = frugal(&store).await;
    given_up(holder.release()).await;
    signal.heard().await;
    wait_for(&mut second, &other).await;
    // The waiter waits again, as the last one.
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    wait_for(&mut waiter, &signal).await;
}

#[tokio::test]
async fn c3_a_claim_that_wants_its_whole_lease_asks_for_it() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, signal) = queue(&store, "a", 1).await.remove(0);
    given_up(holder.release()).await;
    signal.heard().await;
    assert_asks(&store, &mut waiter).await;
}

/// The same hand-over through the core.
async fn handed_over(renewal: Renewal) -> (RedisServer, Admin, Locker, LockGuard) {
    let Store { redis, admin, server } = Store::start().await;
    // Without the process's gate, the claims compete in the store's own queue.
    let locker = Locker::new(redis).with_process_gate(false);
    let options =
        LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT).with_renewal(renewal);
    let mutex = locker.mutex("a").unwrap().with_options(options).unwrap();
    let first = mutex.lock().await.unwrap();
    admin.reset_calls().await;
    let waiter = tokio::spawn(async move { mutex.lock().await.unwrap() });
    while admin.ask::<u64>(&["ZCARD", &queue_key("a")]).await == 0 {}
    first.release().await.unwrap();
    (server, admin, locker, waiter.await.unwrap())
}

/// Nothing renews this lock.
#[tokio::test]
async fn c10_a_manual_lock_that_was_handed_over_has_its_whole_ttl() {
    let began = Instant::now();
    let (_server, admin, locker, guard) = handed_over(Renewal::Manual).await;
    // The waiter queued, the other claim released, and the waiter claimed. On a busy machine, the
    // waiter may also have been kept alive.
    let requests = admin.requests().await;
    let refreshes = began.elapsed().as_secs();
    assert!((3..=3 + refreshes).contains(&requests), "{requests} in {:?}", began.elapsed());
    assert!(ttl(&admin).await > WINDOW * 2);
    sleep(WINDOW * 11 / 10).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

#[tokio::test]
async fn c10_a_lock_that_was_handed_over_is_renewed_within_its_claim_window() {
    let (_server, admin, locker, guard) = handed_over(Renewal::Auto).await;
    let renewed = async { while ttl(&admin).await <= WINDOW {} };
    timeout(SOON, renewed).await.expect("nobody renews it");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
}
