//! Tests the queue in the store: the first waiter is served first, whatever happens to the others.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use futures_util::future::join_all;
use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Backend as _, ClaimSpec, Mode, Released, Wait, Wake},
};
use lockkit_fixture::claims::given_up;
use lockkit_redis::Redis;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{proxy::Proxy, support::*};

/// For how long another client has the lock, in ms.
const LAPSE: &str = "15000";

/// Waits in the queue of "a" as a client of its own.
async fn waiter_of(redis: &Redis) -> Waiter {
    let signal = Arc::new(WakeSignal::default());
    let mut spec = spec("a");
    spec.wake = Wake::to(&signal);
    let mut claim = redis.claim(spec).unwrap();
    assert!(busy(claim.attempt(Wait::Queue).await).0);
    (claim, signal)
}

#[tokio::test]
async fn c12_readers_and_writers_of_all_clients_are_served_in_the_order_of_their_arrival() {
    let store = Store::start().await;
    let other = connect(&store.server.url()).await.unwrap();
    let name = LockName::new(Kind::RwLock, "a").unwrap();
    let spec_of = |mode| ClaimSpec::new(name.clone(), OwnerId::random(), mode, TTL, OP_TIMEOUT);
    let write = Mode::Exclusive;
    let read = Mode::Shared;
    let mut writer = store.redis.claim(spec_of(write)).unwrap();
    granted(writer.attempt(Wait::No).await);
    let mut waiters = Vec::new();
    for (at, mode) in [write, read, read, write, read, write].into_iter().enumerate() {
        let signal = Arc::new(WakeSignal::default());
        let mut spec = spec_of(mode);
        spec.wake = Wake::to(&signal);
        let redis = if at % 2 == 0 { &store.redis } else { &other };
        let mut claim = redis.claim(spec).unwrap();
        assert!(busy(claim.attempt(Wait::Queue).await).0);
        waiters.push((claim, signal));
    }
    store.admin.reset_calls().await;
    given_up(writer.release()).await;
    let mut last = 0;
    for together in [0..1, 1..3, 3..4, 4..5, 5..6] {
        for (claim, signal) in &mut waiters[together.clone()] {
            let token = lock_when_woken(claim, signal).await.token.get();
            assert!(token > last, "{together:?}");
            last = token;
        }
        assert_eq!(
            wakes(&waiters[together.end..]),
            vec![0; 6 - together.end],
            "one behind {together:?} was woken"
        );
        for (claim, _) in &mut waiters[together] {
            assert_eq!(claim.release().await.unwrap(), Released::Freed);
        }
    }
    // Each grant costs a claim and a release.
    assert_eq!(store.admin.requests().await, 1 + 2 * 6);
}

#[tokio::test]
async fn c8_a_release_sends_one_message_to_one_client() {
    let store = Store::start().await;
    let proxies = [Proxy::to(store.server.port()).await, Proxy::to(store.server.port()).await];
    let mut clients = Vec::new();
    for proxy in &proxies {
        clients.push(connect(&proxy.url("")).await.unwrap());
    }
    let mut holder = holder(&store, "a").await;
    let mut first = waiter_of(&clients[0]).await;
    let others = [waiter_of(&clients[1]).await, waiter_of(&clients[0]).await];
    // The size of an answer that every client can ask for.
    let heard = async |client: usize| {
        clients[client].inspect(&mutex("settle")).await.unwrap();
        proxies[client].heard.load(Ordering::SeqCst)
    };
    let start = heard(1).await;
    let answer = heard(1).await - start;
    let before = heard(0).await;
    let others_before = heard(1).await;
    store.admin.reset_calls().await;
    given_up(holder.release()).await;
    first.1.heard().await;
    assert_eq!(store.admin.calls("publish").await, 1);
    assert_eq!(heard(1).await, others_before + answer, "another client was told something");
    assert!(heard(0).await > before + answer);
    assert_eq!((others[0].1.wakes(), others[1].1.wakes()), (0, 0));
    granted(first.0.attempt(Wait::Queue).await);
}

#[tokio::test]
async fn c12_a_waiter_without_a_connection_is_passed_over_and_is_the_next_one() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let lonely = connect(&proxy.url("")).await.unwrap();
    let mut holder = holder(&store, "a").await;
    let (mut first, signal) = waiter_of(&lonely).await;
    let mut others = queue(&store, "a", 2).await;
    let channels = async || store.admin.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).await.len();
    assert_eq!(channels().await, 2);
    // The client loses a reply, and the connection with it. The waiter is woken, and does nothing
    // yet.
    proxy.cut.store(true, Ordering::SeqCst);
    lonely.inspect(&mutex("settle")).await.unwrap_err();
    signal.heard().await;
    timeout(SOON, async { while channels().await > 1 {} }).await.unwrap();

    given_up(holder.release()).await;
    let (second, second_signal) = &mut others[0];
    second_signal.heard().await;
    granted(second.attempt(Wait::Queue).await);
    // The waiter is back in its old place.
    assert!(busy(first.attempt(Wait::Queue).await).0);
    given_up(second.release()).await;
    signal.heard().await;
    let token = granted(first.attempt(Wait::Queue).await).token;
    assert_eq!(others[1].1.wakes(), 0);
    given_up(first.release()).await;
    let (third, third_signal) = &mut others[1];
    third_signal.heard().await;
    assert!(granted(third.attempt(Wait::Queue).await).token > token);
    given_up(third.release()).await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn c8_a_waiter_without_messages_finds_the_free_lock_by_a_poll() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 2).await;
    kill_clients(&store).await;
    waiters[0].1.heard().await;
    let lock: String = store.admin.ask(&["GET", &lock_key("a")]).await;
    // A client without waiters frees the lock, while the other client has no connection.
    let token = lock.split(':').next().unwrap().parse().unwrap();
    let operator = connect(&store.server.url()).await.unwrap();
    let freed =
        operator.force_release(&mutex("a"), lockkit_core::FencingToken::new(token)).await.unwrap();
    assert_eq!(freed, Released::Freed);
    assert_eq!(store.admin.ask::<u64>(&["EXISTS", &lock_key("a")]).await, 0);
    // The second waiter looks first, and the first waiter gets the lock.
    assert!(busy(waiters[1].0.attempt(Wait::Queue).await).0);
    granted(waiters[0].0.attempt(Wait::Queue).await);
    given_up(waiters[0].0.release()).await;
    let (second, signal) = &mut waiters[1];
    wait_for(second, signal).await;
    given_up(second.release()).await;
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test]
async fn c8_a_message_lost_with_its_connection_costs_no_turn() {
    let store = Store::start().await;
    let proxy = Proxy::to(store.server.port()).await;
    let redis = connect(&proxy.url("")).await.unwrap();
    for _ in 0..5 {
        let mut holder = holder(&store, "a").await;
        let (mut first, signal) = waiter_of(&redis).await;
        let mut others = queue(&store, "a", 1).await;
        // The next message to the client would say that it has the lock.
        proxy.cut.store(true, Ordering::SeqCst);
        given_up(holder.release()).await;
        let stored: String = store.admin.ask(&["GET", &lock_key("a")]).await;
        signal.heard().await;
        let grant = wait_for(&mut first, &signal).await;
        assert!(stored.starts_with(&format!("{}:", grant.token)), "{stored}");
        assert_eq!(wakes(&others), [0]);
        given_up(first.release()).await;
        let (second, signal) = &mut others[0];
        lock(second, signal).await;
        given_up(second.release()).await;
    }
    assert_clean(&store).await;
}

#[tokio::test]
async fn c1_a_foreign_lock_is_waited_for_to_its_end_and_not_beyond() {
    let store = Store::start().await;
    let foreign = async || {
        store
            .admin
            .ask::<Option<String>>(&["SET", &lock_key("a"), "me", "NX", "PX", LAPSE])
            .await
            .is_some()
    };
    assert!(foreign().await);
    let lapses: u64 = store.admin.ask(&["PEXPIRETIME", &lock_key("a")]).await;
    let mut waiters = queue(&store, "a", 2).await;
    let (first, signal) = &mut waiters[0];
    // The token is not below the server's time at the grant.
    let token = wait_for(first, signal).await.token.get();
    assert!(token >= lapses * 1000, "{token} is before the end of the lease at {lapses} ms");
    assert!(!foreign().await);
    given_up(first.release()).await;
    // The lock has passed on at once, so a foreign client finds no gap.
    assert!(!foreign().await);
    let (second, signal) = &mut waiters[1];
    lock(second, signal).await;
    given_up(second.release()).await;
    assert!(foreign().await);
}

#[tokio::test]
async fn c12_a_foreign_lock_beside_the_queue_costs_no_waiter_its_place() {
    let store = Store::start().await;
    let _past = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 2).await;
    store.admin.ask::<()>(&["SET", &lock_key("a"), "me", "EX", "60"]).await;
    let (mut late, _) = queue(&store, "a", 1).await.remove(0);
    store.end_leases(&mutex("a")).await;
    for (waiter, signal) in &mut waiters {
        wait_for(waiter, signal).await;
        given_up(waiter.release()).await;
    }
    granted(late.attempt(Wait::Queue).await);
}

#[tokio::test]
async fn c6_a_queue_of_dead_waiters_is_passed_over_and_expires() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    drop(queue(&store, "a", 5).await);
    // If no waiter looks, the server forgets them.
    for key in [queue_key("a"), live_key("a")] {
        let left: i64 = store.admin.ask(&["PTTL", &key]).await;
        assert!((1..=i64::try_from((WINDOW * 2).as_millis()).unwrap()).contains(&left), "{left}");
    }
    // While one waiter lives, the dead ones are skipped when their time has come.
    let dead: Vec<String> = store.admin.ask(&["ZRANGE", &live_key("a"), "0", "-1"]).await;
    let (mut living, signal) = queue(&store, "a", 1).await.remove(0);
    for waiter in dead {
        store.admin.ask::<()>(&["ZADD", &live_key("a"), "XX", "1", &waiter]).await;
    }
    given_up(holder.release()).await;
    signal.heard().await;
    granted(living.attempt(Wait::Queue).await);
    assert_eq!(store.admin.ask::<u64>(&["EXISTS", &queue_key("a"), &live_key("a")]).await, 0);
    given_up(living.release()).await;
    assert_clean(&store).await;
}

/// The waiters of one client, until they are dropped. Each is in a task of its own, as under the
/// core.
fn waiting(waiters: Vec<Waiter>) -> JoinSet<Waiter> {
    let tasks = waiters.into_iter().map(|(mut claim, signal)| async move {
        wait_for_long(&mut claim, &signal).await;
        (claim, signal)
    });
    tasks.collect()
}

#[tokio::test]
async fn c8_the_end_of_a_lease_costs_each_client_one_request_and_the_winner_one_more() {
    let store = Store::start().await;
    let other = connect(&store.server.url()).await.unwrap();
    store.admin.ask::<()>(&["SET", &lock_key("a"), "somebody", "PX", LAPSE]).await;
    let mut waiters = queue(&store, "a", 50).await;
    for _ in 0..50 {
        waiters.push(waiter_of(&other).await);
    }
    store.admin.reset_calls().await;
    let mut tasks = waiting(waiters);
    let start = Instant::now();
    let (winner, _signal) = tasks.join_next().await.unwrap().unwrap();
    let requests = store.admin.requests().await;
    // The server rounds the remaining time, so the first waiter may look a moment too early. Until
    // then, each client keeps its waiters alive.
    let periods = 1 + start.elapsed().as_secs();
    assert!((2..=2 * 2 + 1 + 2 * periods).contains(&requests), "{requests} requests");
    drop((winner, tasks));
}

#[tokio::test]
async fn c6_a_dropped_poller_hands_its_work_to_another_waiter() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    let asks = async |(claim, _): &mut Waiter| timeout(MOMENT, claim.attempt(Wait::Queue)).await;
    let before = store.lives(&mutex("a")).await;
    sleep(PERIOD).await;
    store.server.pause().unwrap();
    assert!(asks(&mut waiters[0]).await.is_err());
    let (mut first, _) = waiters.remove(0);
    // The next waiter does not wait for an answer to the dropped one, and does not take that
    // question as answered.
    assert!(asks(&mut waiters[0]).await.is_err());
    store.server.resume().unwrap();
    assert!(busy(waiters[1].0.attempt(Wait::Queue).await).0);
    assert_eq!(before.len(), 3);
    assert!(store.live_longer(&mutex("a"), &before).await);
    given_up(first.release()).await;
    given_up(holder.release()).await;
    for (claim, signal) in &mut waiters {
        wait_for(claim, signal).await;
        given_up(claim.release()).await;
    }
    assert_clean(&store).await;
}

#[tokio::test]
async fn c8_a_thousand_waiters_of_one_client_are_kept_alive_by_two_requests_a_period() {
    let store = Store::start().await;
    let _holder = holder(&store, "a").await;
    let mut waiters: Vec<_> = (0..1000).map(|_| store.waiter("a")).collect();
    for attempt in join_all(waiters.iter_mut().map(|(claim, _)| claim.attempt(Wait::Queue))).await {
        assert!(busy(attempt).0);
    }
    let tasks = waiting(waiters);
    let mut requests = 0;
    for _ in 0..3 {
        store.admin.reset_calls().await;
        let start = Instant::now();
        let before = store.lives(&mutex("a")).await;
        let kept = async {
            while !store.live_longer(&mutex("a"), &before).await {
                sleep(PERIOD / 4).await;
            }
        };
        timeout(SOON, kept).await.expect("they are not kept alive");
        requests = store.admin.requests().await;
        let periods = start.elapsed().div_duration_f64(PERIOD);
        println!("{requests} requests in {periods:.1} periods for 1000 waiters");
        assert!(
            f64::from(u32::try_from(requests).unwrap()) <= 2.0 * (periods + 1.0),
            "{requests} requests"
        );
    }
    assert!(requests > 0);
    assert_eq!(store.redis.inspect(&mutex("a")).await.unwrap().waiters, Some(1000));
    assert_eq!(tasks.len(), 1000);
}
