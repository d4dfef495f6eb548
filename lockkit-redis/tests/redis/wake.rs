//! Tests wake-ups: one waiter for each release, none lost, and nothing left subscribed or queued.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use lockkit_core::spi::{Attempt, Backend as _, Released, Wait};
use lockkit_fixture::claims::given_up;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::support::*;

#[tokio::test]
async fn c8_one_release_wakes_only_the_first_waiter() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 64).await;
    store.admin.reset_calls().await;
    given_up(holder.release()).await;
    waiters[0].1.heard().await;
    store.settle().await;
    assert_eq!(wakes(&waiters).iter().sum::<usize>(), 1);

    // The same happens down the queue: a claim and a release for each grant.
    for at in 0..waiters.len() {
        let (claim, _) = &mut waiters[at];
        granted(claim.attempt(Wait::Queue).await);
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
        if let Some((_, next)) = waiters.get(at + 1) {
            next.heard().await;
        }
    }
    assert_eq!(wakes(&waiters), [1; 64]);
    assert_eq!(store.admin.requests().await, 1 + 1 + 2 * 64);
    drop(waiters);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c6_a_cancelled_waiter_passes_a_handed_lock_on() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    given_up(holder.release()).await;
    waiters[0].1.heard().await;
    assert_eq!(wakes(&waiters), [1, 0, 0]);
    let (mut first, _) = waiters.remove(0);
    // The waiter had the lock, though it never looked.
    assert_eq!(first.release().await.unwrap(), Released::Freed);
    waiters[0].1.heard().await;
    assert_eq!(wakes(&waiters), [1, 0]);
    // A waiter that was not handed the lock takes nothing along.
    let (mut last, _) = waiters.remove(1);
    assert_eq!(last.release().await.unwrap(), Released::NotHeld);
    store.settle().await;
    assert_eq!(wakes(&waiters), [1]);
    let (mut second, _) = waiters.remove(0);
    granted(second.attempt(Wait::Queue).await);
    given_up(second.release()).await;
    assert_clean(&store).await;
}

/// The waiter gets the message and does nothing, or it is dropped without a release while its
/// process lives.
#[tokio::test]
async fn c8_a_waiter_that_never_moves_keeps_the_lock_for_its_claim_window_and_no_longer() {
    tokio::join!(never_moves(false), never_moves(true));
}

async fn never_moves(gone: bool) {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    given_up(holder.release()).await;
    waiters[0].1.heard().await;
    let left = Duration::from_millis(store.admin.ask(&["PTTL", &lock_key("a")]).await);
    assert!(left <= WINDOW, "{left:?}");
    let (first, _) = waiters.remove(0);
    let first = (!gone).then_some(first);
    let (second, signal) = &mut waiters[0];
    wait_for(second, signal).await;
    given_up(second.release()).await;
    let (third, signal) = &mut waiters[1];
    signal.heard().await;
    granted(third.attempt(Wait::Queue).await);
    given_up(third.release()).await;
    if let Some(mut first) = first {
        assert_eq!(first.release().await.unwrap(), Released::NotHeld);
    }
    assert_clean(&store).await;
}

#[tokio::test]
async fn c6_a_hand_over_is_not_spent_by_an_attempt_without_an_answer() {
    let store = Store::start().await;
    for then in ["asks again", "leaves"] {
        let mut holder = holder(&store, "a").await;
        let mut waiters = queue(&store, "a", 2).await;
        given_up(holder.release()).await;
        waiters[0].1.heard().await;
        let (mut first, _) = waiters.remove(0);
        let handed: String = store.admin.ask(&["GET", &lock_key("a")]).await;
        store.server.pause().unwrap();
        assert!(timeout(MOMENT, first.attempt(Wait::Queue)).await.is_err());
        if then == "leaves" {
            assert!(timeout(MOMENT, first.release()).await.is_err());
        }
        store.server.resume().unwrap();
        if then == "asks again" {
            let token = granted(first.attempt(Wait::Queue).await).token;
            assert!(handed.starts_with(&format!("{token}:")), "{token} is not that of {handed}");
            assert_eq!(first.release().await.unwrap(), Released::Freed);
        }
        let (mut second, signal) = waiters.remove(0);
        signal.heard().await;
        granted(second.attempt(Wait::Queue).await);
        // The unanswered release arrived as well. It changes nothing for the second waiter.
        assert_eq!(first.release().await.unwrap(), Released::NotHeld);
        assert_eq!(second.release().await.unwrap(), Released::Freed);
    }
    assert_clean(&store).await;
}

/// Only the store decides who has the lock.
#[tokio::test]
async fn c1_a_forged_message_only_makes_the_waiter_ask() {
    let store = Store::start().await;
    let spec = spec("a");
    let mut holder = holder(&store, "a").await;
    let owner = spec.owner.to_string();
    let (mut waiter, signal) = waiter_for(&store, spec);
    busy(waiter.attempt(Wait::Queue).await);
    let channel = store.client_channel().await;
    // Garbage and messages for other owners do not concern the waiter.
    for text in ["", "x", "0123456789abcdef0123456789abcdef 1 2 3", &format!("{owner} 1")] {
        store.admin.ask::<()>(&["PUBLISH", &channel, text]).await;
    }
    store.settle().await;
    assert_eq!(signal.wakes(), 0);
    // These messages are old: that lock has passed on since.
    for text in [owner.clone(), format!("{owner} 1 2 3000")] {
        store.admin.reset_calls().await;
        store.admin.ask::<()>(&["PUBLISH", &channel, &text]).await;
        signal.heard().await;
        busy(waiter.attempt(Wait::Queue).await);
        assert_eq!(store.admin.requests().await, 1);
    }
    given_up(holder.release()).await;
    lock(&mut waiter, &signal).await;
    given_up(waiter.release()).await;
    assert_clean(&store).await;
}

/// A user deletes the key. No waiter gets a message, and the next look of any waiter finds out.
#[tokio::test]
async fn c8_a_lock_that_vanished_goes_to_the_first_waiter_when_any_waiter_asks() {
    let store = Store::start().await;
    let past = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    store.admin.ask::<()>(&["DEL", &lock_key("a")]).await;
    // Any waiter may be the one that looks.
    let (last, rest) = waiters.split_last_mut().map(|((last, _), rest)| (last, rest)).unwrap();
    let looks = async {
        loop {
            sleep(busy(last.attempt(Wait::Queue).await).1.unwrap()).await;
        }
    };
    let (first, signal) = &mut rest[0];
    tokio::select! {
        () = looks => {}
        () = signal.heard() => {}
    }
    granted(first.attempt(Wait::Queue).await);
    given_up(first.release()).await;
    waiters[1].1.heard().await;
    drop(past);
}

#[tokio::test]
async fn c6_a_client_has_one_channel_and_leaves_no_place_in_a_queue() {
    let store = Store::start().await;
    let channel = store.client_channel().await;
    let all = async || store.admin.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).await;
    let waiting = async || store.admin.ask::<u64>(&["ZCARD", &queue_key("a")]).await;
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    for left in [3, 2, 1] {
        assert_eq!((all().await, waiting().await), (vec![channel.clone()], left));
        let (mut claim, _) = waiters.pop().unwrap();
        given_up(claim.release()).await;
    }
    assert_eq!(store.admin.keys().await, [lock_key("a"), counter_key()]);
    // A grant leaves no place in the queue either.
    let (mut last, signal) = store.waiter("a");
    busy(last.attempt(Wait::Queue).await);
    given_up(holder.release()).await;
    lock(&mut last, &signal).await;
    assert_eq!(store.admin.keys().await, [lock_key("a"), counter_key()]);
    given_up(last.release()).await;
    assert_eq!(all().await, [channel]);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c6_an_attempt_dropped_while_it_queues_leaves_no_place_in_the_queue() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    for pause in 0..60 {
        let (mut claim, _) = store.waiter("a");
        let _ = timeout(Duration::from_micros(pause * 10), claim.attempt(Wait::Queue)).await;
        given_up(claim.release()).await;
    }
    store.settle().await;
    assert!(store.admin.channels().await.is_empty());
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    assert_clean(&store).await;
}

/// There are more waiters than the queue of the connection has room for.
#[tokio::test]
async fn c6_thousands_of_calls_cancelled_at_once_leave_nothing() {
    const NAMES: usize = 1_100;
    let store = Store::start().await;
    let foreign = "for i = 1, ARGV[1] do redis.call('SET', 'lockkit:mutex:{' .. i .. '}', 'x') end";
    store.admin.ask::<()>(&["EVAL", foreign, "0", &NAMES.to_string()]).await;
    let mut waiters: Vec<_> = (1..=NAMES).map(|name| store.waiter(&name.to_string())).collect();
    // All attempts run at once. One after the other, the first waiters could be dead when the last
    // one comes.
    for attempt in join_all(waiters.iter_mut().map(|(waiter, _)| waiter.attempt(Wait::Queue))).await
    {
        assert!(busy(attempt).0);
    }
    assert!(store.admin.channels().await.is_empty());
    assert_eq!(store.admin.keys().await.len(), 3 * NAMES);
    // Half of the waiters are forgotten without a release. Their entries lapse by themselves.
    for released in
        join_all(waiters.iter_mut().step_by(2).map(|(waiter, _)| waiter.release())).await
    {
        assert_eq!(released.unwrap(), Released::NotHeld);
    }
    let all_lapse = "for _, key in ipairs(redis.call('KEYS', '*}:*')) do \
                     if redis.call('PTTL', key) < 0 then return key end end return 'all'";
    assert_eq!(store.admin.ask::<String>(&["EVAL", all_lapse, "0"]).await, "all");
    assert_eq!(store.admin.keys().await.len(), 3 * NAMES - 2 * (NAMES / 2));
}

#[tokio::test]
async fn c6_a_call_cancelled_with_many_requests_in_flight_leaves_no_place_in_the_queue() {
    let store = Store::start().await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, _) = queue(&store, "a", 1).await.remove(0);
    let mut claims: Vec<_> = (0..1100).map(|n| store.claim(&format!("other {n}"))).collect();
    let attempts = join_all(claims.iter_mut().map(|claim| claim.attempt(Wait::No)));
    let mut attempts = std::pin::pin!(tokio::task::unconstrained(attempts));
    // These attempts fill the queue of the connection.
    assert!(attempts.as_mut().now_or_never().is_none());
    let (attempts, released) = tokio::join!(attempts, waiter.release());
    assert!(attempts.into_iter().all(|attempt| matches!(attempt, Ok(Attempt::Granted(_)))));
    assert_eq!(released.unwrap(), Released::NotHeld);
    assert_eq!(store.admin.ask::<u64>(&["EXISTS", &queue_key("a"), &live_key("a")]).await, 0);
    given_up(holder.release()).await;
}

/// Waiters come to one name and leave it while the lock passes among them. No wake-up may be lost,
/// because nothing else wakes them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_no_wake_up_is_lost_between_queueing_and_leaving() {
    let store = Arc::new(Store::start().await);
    let mut tasks = JoinSet::new();
    for task in 0..8_u64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for round in 0..150_u64 {
                let (mut claim, signal) = store.waiter("a");
                let impatient = (task + round) % 3 == 0;
                let patience =
                    if impatient { Duration::from_micros(round * 7 % 900) } else { SOON };
                if timeout(patience, lock(&mut claim, &signal)).await.is_ok() && round % 4 == 0 {
                    tokio::task::yield_now().await;
                }
                given_up(claim.release()).await;
                if round % 2 == 0 {
                    sleep(Duration::from_micros(task * 50)).await;
                }
            }
        });
    }
    tasks.join_all().await;
    assert_clean(&store).await;
}

#[tokio::test]
async fn c8_contended_grants_cost_a_constant_number_of_requests() {
    let store = Arc::new(Store::start().await);
    granted(store.claim("warm").attempt(Wait::No).await);
    store.admin.reset_calls().await;
    let tasks = 64;
    let rounds = 10;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let store = Arc::clone(&store);
        running.spawn(async move {
            for _ in 0..rounds {
                let (mut claim, signal) = store.waiter("a");
                lock(&mut claim, &signal).await;
                sleep(Duration::from_millis(1)).await;
                given_up(claim.release()).await;
            }
        });
    }
    running.join_all().await;
    // A grant needs one attempt that finds the lock busy, one that wins, and one release. The
    // subscription costs more at the start.
    let requests = store.admin.requests().await;
    assert!(requests <= 4 * tasks * rounds, "{requests} requests for {} grants", tasks * rounds);
}

#[tokio::test]
async fn c13_without_rights_on_channels_a_release_works_and_waiters_poll() {
    let store = Store::start().await;
    store
        .admin
        .ask::<()>(&["ACL", "SETUSER", "mute", "on", ">pw", "~*", "+@all", "resetchannels"])
        .await;
    let url = format!("redis://mute:pw@127.0.0.1:{}/", store.server.port());
    let mute = connect(&url).await.unwrap();
    let mut holder = mute.claim(spec("a")).unwrap();
    granted(holder.attempt(Wait::No).await);
    let (mut other, signal) = store.waiter("a");
    // The waiters are served in the order in which they came, whether they get messages or must
    // ask. The holder can't send messages.
    let mut waiter = mute.claim(spec("a")).unwrap();
    assert!(busy(waiter.attempt(Wait::Queue).await).1.is_some());
    assert!(busy(other.attempt(Wait::Queue).await).0);
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    wait_for(&mut waiter, &WakeSignal::default()).await;
    assert_eq!(signal.wakes(), 0);
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    wait_for(&mut other, &signal).await;
    assert_eq!(other.release().await.unwrap(), Released::Freed);
    assert_clean(&store).await;
}

#[tokio::test]
async fn c8_a_server_that_is_busy_at_a_poll_is_asked_again() {
    let store = Store::start_with(&["--lua-time-limit", "20"], "").await;
    let mut holder = holder(&store, "a").await;
    let (mut waiter, signal) = queue(&store, "a", 1).await.remove(0);
    store.admin.ask::<()>(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]).await;
    signal.heard().await;
    store.settle().await;
    let blocker = Admin::to(&store.server).await;
    let endless = tokio::spawn(async move {
        blocker.try_ask::<()>(&["EVAL", "while true do end", "0"]).await.unwrap_err();
    });
    let is_busy = async || store.admin.try_ask::<()>(&["PING"]).await.is_err();
    timeout(SOON, async { while !is_busy().await {} }).await.unwrap();
    let error = waiter.attempt(Wait::Queue).await.unwrap_err();
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
    store.admin.ask::<()>(&["SCRIPT", "KILL"]).await;
    endless.await.unwrap();
    busy(waiter.attempt(Wait::Queue).await);
    let before = signal.wakes();
    given_up(holder.release()).await;
    while signal.wakes() == before {
        signal.heard().await;
    }
    granted(waiter.attempt(Wait::Queue).await);
}

#[tokio::test]
async fn a_server_without_resp3_is_polled_in_turn() {
    let store = Store::start_with(&["--rename-command", "HELLO", ""], "").await;
    assert!(!store.redis.descriptor().capabilities.push);
    let mut holder = holder(&store, "a").await;
    let mut waiters = queue(&store, "a", 3).await;
    given_up(holder.release()).await;
    for at in 0..waiters.len() {
        // The last waiter asks first, and gets nothing.
        let ask = at + 1 < waiters.len();
        let (last, _) = waiters.last_mut().unwrap();
        if ask {
            busy(last.attempt(Wait::Queue).await);
        }
        let (waiter, signal) = &mut waiters[at];
        wait_for(waiter, signal).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    }
    assert_clean(&store).await;
}
