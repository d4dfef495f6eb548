//! A lock that was handed over by message: taken without a request where its lease can be proved, by a request else.

use std::time::{Duration, Instant};

use lockkit_core::{
    Clock, FencingToken, LockOptions, Locker, Renewal,
    spi::{Claim, Lease, Pulse, Released, Wait},
};
use lockkit_fixture::{ClockDirection, RedisServer};
use tokio::time::sleep;

use crate::support::*;

/// A waiter that is content with a short lease.
async fn frugal(store: &Store, op_timeout: Duration) -> Waiter {
    let mut spec = spec_for("a", TTL, op_timeout);
    spec.short_lease = true;
    let (mut claim, bell) = ring_for(store, spec);
    assert!(busy(claim.attempt(Wait::Queue).await).0);
    (claim, bell)
}

async fn fence(store: &Store) -> FencingToken {
    let fence: String = store.admin.ask(&["GET", &fence_key("a")]).await;
    FencingToken::new(fence.split(':').next().unwrap().parse().unwrap())
}

/// Not proved: one request, for the token that was handed over and a whole lease.
async fn assert_asks(store: &Store, claim: &mut Box<dyn Claim>) {
    let token = fence(store).await;
    store.admin.reset_calls().await;
    let grant = granted(claim.attempt(Wait::Queue).await);
    assert_eq!(store.admin.requests().await, 1);
    assert_eq!((grant.token, lasts(grant.lease)), (token, TTL));
    assert!(ttl(store).await > TTL / 2);
}

async fn ttl(store: &Store) -> Duration {
    Duration::from_millis(store.admin.ask(&["PTTL", &lock_key("a")]).await)
}

#[tokio::test]
async fn c3_a_proved_lease_costs_no_request_and_ends_before_the_stores_does() {
    let store = Store::start().await;
    for round in 0..20 {
        let mut holder = holder(&store, "a").await;
        let (mut waiter, bell) = frugal(&store, OP_TIMEOUT).await;
        sleep(Duration::from_millis(50)).await;
        holder.release().await.unwrap();
        bell.heard().await;
        // Time that passes before it looks is not given to it.
        sleep(Duration::from_millis(5 * round)).await;
        store.admin.reset_calls().await;
        let grant = granted(waiter.attempt(Wait::Queue).await);
        let left = ttl(&store).await;
        let read = Clock::Boot.now();
        assert_eq!(store.admin.requests().await, 0);
        assert_eq!(grant.token, fence(&store).await);
        let Lease::Proven { at, lasts } = grant.lease else { panic!("{:?}", grant.lease) };
        assert!(left <= OP_TIMEOUT, "the store was asked for more: {left:?}");
        // The server counts whole milliseconds.
        let lapses = read.after(left + Duration::from_millis(1));
        assert!(at.after(lasts) <= lapses, "{:?} too late", lapses.until(at.after(lasts)));
        // Nor is it thrown away: the time in the queue does not count.
        assert!(lasts >= OP_TIMEOUT + Duration::from_millis(45), "{lasts:?}");
        assert!(matches!(waiter.keep_alive().await.unwrap(), Pulse::Alive(_)));
        assert!(ttl(&store).await > TTL / 2);
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
    assert_clean(&store, "a").await;
}

#[tokio::test]
async fn c3_nothing_is_proved_across_a_step_of_the_servers_clock() {
    let server = RedisServer::start_with_clock().unwrap();
    let store = Store::on(server, "").await;
    for direction in [ClockDirection::Forward, ClockDirection::Back] {
        let mut holder = holder(&store, "a").await;
        let (mut waiter, bell) = frugal(&store, OP_TIMEOUT).await;
        store.server.clock().unwrap().step(Duration::from_secs(2), direction).unwrap();
        holder.release().await.unwrap();
        bell.heard().await;
        assert_asks(&store, &mut waiter).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
    assert_clean(&store, "a").await;
}

#[tokio::test]
async fn c3_nothing_is_proved_by_an_answer_on_another_connection() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, bell) = frugal(&store, OP_TIMEOUT).await;
    kill_clients(&store).await;
    bell.heard().await;
    // Another claim opens the next connection, on which the message comes.
    granted(store.claim("b").attempt(Wait::No).await);
    holder.release().await.unwrap();
    bell.heard().await;
    assert_asks(&store, &mut waiter).await;
}

/// Whoever may publish may say that a waiter has the lock. The first renewal tells that it has not.
#[tokio::test]
async fn c3_a_forged_message_is_believed_for_a_claim_window_at_most() {
    let store = Store::start().await;
    let _holder = holder(&store, "a").await;
    let (mut waiter, bell) = frugal(&store, OP_TIMEOUT).await;
    let members: Vec<String> = store.admin.ask(&["ZRANGE", &queue_key("a"), "0", "-1"]).await;
    let owner = members[0].rsplit(':').next().unwrap();
    let now: (u64, u64) = store.admin.ask(&["TIME"]).await;
    let now = now.0 * 1_000_000 + now.1;
    let forged = format!("{owner} {now} {now} 600000");
    store.admin.ask::<()>(&["PUBLISH", &store.client_channel().await, &forged]).await;
    bell.heard().await;
    let Lease::Proven { at, lasts } = granted(waiter.attempt(Wait::Queue).await).lease else {
        panic!("asked")
    };
    let until = Clock::Boot.now().until(at.after(lasts));
    assert!(until <= OP_TIMEOUT, "believed for {until:?}");
    let pulse = waiter.keep_alive().await.unwrap();
    assert!(matches!(pulse, Pulse::Lost(_)), "{pulse:?}");
}

#[tokio::test]
async fn c3_a_waiter_that_looks_late_asks_for_a_whole_lease() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, bell) = frugal(&store, WINDOW).await;
    holder.release().await.unwrap();
    bell.heard().await;
    sleep(WINDOW * 3 / 5).await;
    assert_asks(&store, &mut waiter).await;
}

#[tokio::test]
async fn c1_a_waiter_that_looks_after_its_window_has_nothing() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, bell) = frugal(&store, WINDOW).await;
    let (mut second, other) = frugal(&store, WINDOW).await;
    holder.release().await.unwrap();
    bell.heard().await;
    wait_for(&mut second, &other).await;
    // It waits again, as the last one.
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    wait_for(&mut waiter, &bell).await;
}

#[tokio::test]
async fn c3_a_claim_that_wants_its_whole_lease_asks_for_it() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, bell) = queue(&store, "a", 1).await.remove(0);
    holder.release().await.unwrap();
    bell.heard().await;
    assert_asks(&store, &mut waiter).await;
}

/// The same through the core: nobody renews a manual lock, and a renewed one goes on long after the claim window.
#[tokio::test]
async fn c10_a_lock_that_was_handed_over_is_renewed_or_has_its_whole_ttl() {
    let Store { redis, admin, server } = Store::start().await;
    // The store's own queue is what is tested.
    let locker = Locker::new(redis).with_process_gate(false);
    let (ttl, window) = (WINDOW * 6, WINDOW * 3);
    let options = LockOptions::new().with_ttl(ttl).with_op_timeout(window);
    for renewal in [Renewal::Manual, Renewal::Auto] {
        let mutex = locker.mutex("a").unwrap().with_options(options.clone().with_renewal(renewal)).unwrap();
        let first = mutex.lock().await.unwrap();
        admin.reset_calls().await;
        let (began, other) = (Instant::now(), mutex.clone());
        let waiter = tokio::spawn(async move { other.lock().await.unwrap() });
        while admin.ask::<u64>(&["ZCARD", &queue_key("a")]).await == 0 {}
        first.release().await.unwrap();
        let second = waiter.await.unwrap();
        if renewal == Renewal::Manual {
            // It queued, the other one released, it claimed. On a busy machine it may have said that it still waits.
            let (requests, refreshes) = (admin.requests().await, began.elapsed().as_secs());
            assert!((3..=3 + refreshes).contains(&requests), "{requests} in {:?}", began.elapsed());
            let left: u64 = admin.ask(&["PTTL", &lock_key("a")]).await;
            assert!(u128::from(left) > (window * 4 / 3).as_millis(), "{left}");
            sleep(window * 11 / 10).await;
        } else {
            sleep(ttl * 7 / 6).await;
        }
        assert!(second.is_held());
        second.release().await.unwrap();
    }
    locker.shutdown().await.unwrap();
    drop(server);
}
