//! C1, C4, C5, C9 when the server's wall clock is set: leases follow the clock, but tokens do not.

use std::time::{Duration, Instant};

use lockkit::{Error, ErrorKind, LockGuard, Locker, spi::LossReason};
use lockkit_conformance::proxy::Proxy;
use lockkit_fixture::{ClockDirection, RedisServer};
use tokio::{task::JoinHandle, time::sleep};

use crate::support::*;

const TTL: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_secs(60);
/// A lease is renewed after a third of it.
const RENEWAL: Duration = Duration::from_secs(10);

fn start() -> RedisServer {
    RedisServer::start_with_clock().unwrap()
}

fn step(server: &RedisServer, direction: ClockDirection) {
    server.clock().unwrap().step(STEP, direction).unwrap();
}

fn spawn_waiter(
    mode: Mode,
    locker: &Locker,
    name: &'static str,
) -> JoinHandle<Result<(LockGuard, Instant), Error>> {
    let locker = locker.clone();
    tokio::spawn(async move {
        let guard = mode.lock(&locker, name, with_ttl(TTL)).await?;
        Ok((guard, Instant::now()))
    })
}

#[tokio::test]
async fn c1_a_clock_step_forward_frees_early_and_the_next_renewal_reports_the_loss() {
    let server = start();
    let first = connect(&server.url()).await;
    let second = connect(&server.url()).await;
    let mut holds = Vec::new();
    for mode in MODES {
        for (name, options) in [("renewed", with_ttl(TTL)), ("not renewed", not_renewed(TTL))] {
            let guard = mode.lock(&first, name, options).await.unwrap();
            let waiter = spawn_waiter(mode, &second, name);
            mode.until_waiting(&second, name, 1).await;
            holds.push((mode, name, guard, waiter));
        }
    }
    let stepped = Instant::now();
    step(&server, ClockDirection::Forward);

    let mut pairs = Vec::new();
    for (mode, name, stale, waiter) in holds {
        let (fresh, granted) = waiter.await.unwrap().unwrap();
        assert!(granted - stepped < SOON, "{mode:?} {name}: {:?}", granted - stepped);
        assert!(
            stale.is_held(),
            "{mode:?} {name}: it can't know yet: this is the exception server_clock_step"
        );
        assert!(fresh.fencing_token() > stale.fencing_token(), "{mode:?} {name}");
        pairs.push((mode, name, stale, fresh));
    }
    for (mode, name, stale, fresh) in pairs {
        if name == "renewed" {
            assert_eq!(stale.lost().wait().await, LossReason::Evicted, "{mode:?}");
            let told = stepped.elapsed();
            assert!(
                told < RENEWAL + SOON,
                "{mode:?}: the loss signal came {told:?} after the step"
            );
        } else {
            assert!(stale.is_held(), "{mode:?}: nothing was asked of the store");
            assert!(is_lost(&stale.renew().await.unwrap_err()), "{mode:?}");
        }
        assert!(!stale.is_held());
        assert_eq!(stale.release().await.unwrap_err().kind(), ErrorKind::Lost);
        fresh.renew().await.unwrap();
        assert!(
            fresh.is_held(),
            "{mode:?} {name}: what the past holder leaves behind does not touch it"
        );
        fresh.release().await.unwrap();
    }
    for locker in [first, second] {
        locker.shutdown().await.unwrap();
    }
    assert_eq!(keys_of_names(&server), [""; 0]);
}

#[tokio::test]
async fn c9_a_step_back_extends_a_dead_holders_lock_by_the_step() {
    let server = start();
    let locker = connect(&server.url()).await;
    let mut waiters = Vec::new();
    for mode in MODES {
        let token = die_holding(&server.url(), mode, "a", with_ttl(TTL));
        waiters.push((mode, token, spawn_waiter(mode, &locker, "a")));
        mode.until_waiting(&locker, "a", 1).await;
    }
    step(&server, ClockDirection::Back);
    for mode in MODES {
        let left = mode.inspect(&locker, "a").await.holders[0].remaining.unwrap();
        assert!(left > STEP && left <= STEP + TTL, "{mode:?}: {left:?}");
    }
    // The leases end when the time passes, or when the clock is corrected.
    step(&server, ClockDirection::Forward);
    server.clock().unwrap().step(TTL, ClockDirection::Forward).unwrap();
    let corrected = Instant::now();
    for (mode, token, waiter) in waiters {
        let (guard, granted) = waiter.await.unwrap().unwrap();
        assert!(granted - corrected < SOON, "{mode:?}: {:?}", granted - corrected);
        assert!(guard.fencing_token() > token, "{mode:?}");
        guard.release().await.unwrap();
    }
    locker.shutdown().await.unwrap();
    assert_eq!(keys_of_names(&server), [""; 0]);
}

#[tokio::test]
async fn c8_a_step_back_blocks_no_waiter_and_no_live_holder() {
    let server = start();
    let first = connect(&server.url()).await;
    let second = connect(&server.url()).await;
    for mode in MODES {
        let held = mode.lock(&first, "a", with_ttl(TTL)).await.unwrap();
        let mut last = held.fencing_token();
        let waiter = spawn_waiter(mode, &second, "a");
        mode.until_waiting(&second, "a", 1).await;
        step(&server, ClockDirection::Back);
        held.renew().await.unwrap();
        assert!(held.remaining() <= STEP + TTL, "{mode:?}: {:?}", held.remaining());
        // One waiter came before the step, the other comes after it; they are granted in this
        // order.
        let late = spawn_waiter(mode, &first, "a");
        mode.until_waiting(&second, "a", 2).await;
        held.release().await.unwrap();
        for waiter in [waiter, late] {
            let released = Instant::now();
            let (guard, granted) = waiter.await.unwrap().unwrap();
            assert!(granted - released < SOON, "{mode:?}");
            assert!(
                guard.fencing_token() > last,
                "{mode:?}: the clock went back, but a token must not"
            );
            last = guard.fencing_token();
            guard.release().await.unwrap();
        }
        step(&server, ClockDirection::Forward);
    }
    for locker in [first, second] {
        locker.shutdown().await.unwrap();
    }
    assert_eq!(keys_of_names(&server), [""; 0]);
}

#[tokio::test]
async fn c4_tokens_rise_over_clock_steps_and_the_store_keeps_the_last_token() {
    let server = start();
    let locker = connect(&server.url()).await;
    for mode in [Mode::Mutex, Mode::Permit, Mode::Write] {
        let mut last = None;
        for direction in [ClockDirection::Forward, ClockDirection::Back, ClockDirection::Back] {
            for _ in 0..2 {
                let guard = mode.lock(&locker, "a", with_ttl(TTL)).await.unwrap();
                let token = guard.fencing_token();
                assert!(last.replace(token) < Some(token), "{mode:?}");
                guard.release().await.unwrap();
            }
            step(&server, direction);
        }
        let kept = server.ask(["PTTL", &format!("{PREFIX}:token")]).unwrap().text();
        assert_eq!(kept, "-1", "the counter lapses");
        step(&server, ClockDirection::Forward);
    }
    locker.shutdown().await.unwrap();
}

#[tokio::test]
async fn c5_after_a_step_the_first_answer_corrects_the_estimate_of_the_servers_time() {
    let server = start();
    let locker = connect(&server.url()).await;
    for direction in [ClockDirection::Forward, ClockDirection::Back] {
        step(&server, direction);
        for mode in MODES {
            let guard = mode.try_lock(&locker, "a", with_ttl(TTL)).await.unwrap();
            guard.expect("it is free").release().await.unwrap();
        }
    }
    locker.shutdown().await.unwrap();
}

/// A request was sent before a step back, and arrives after its caller has given up. lockkit
/// releases it again and again for one ttl.
#[tokio::test]
async fn c5_a_request_in_flight_at_a_step_back_may_be_late_and_is_undone() {
    let server = start();
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let locker = connect(&format!("redis://{}/", proxy.addr())).await;
    let late = Duration::from_millis(400);
    let options = with_ttl(late * 6).with_op_timeout(late / 2);
    // After a step, once one answer has come, no late request is applied.
    for (name, answered) in [("answered", true), ("not answered", false)] {
        step(&server, ClockDirection::Back);
        if answered {
            let guard = Mode::Mutex.try_lock(&locker, "b", with_ttl(TTL)).await.unwrap();
            guard.unwrap().release().await.unwrap();
        }
        proxy.set(|toxics| toxics.up.hold = true);
        let locker = locker.clone();
        let options = options.clone();
        let attempt =
            tokio::spawn(async move { Mode::Mutex.try_lock(&locker, name, options).await });
        sleep(late / 4).await;
        proxy.reset_clients(late);
        proxy.heal();
        assert!(attempt.await.unwrap().unwrap_err().is_outcome_unknown());
        let start = Instant::now();
        let mut applied = false;
        while start.elapsed() < late * 2 {
            applied |= has_key(&server, &lock_key(name));
            sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(applied, !answered, "{name}");
        eventually("it is taken back", async || !has_key(&server, &lock_key(name))).await;
    }
    locker.shutdown().await.unwrap();
    assert_eq!(keys_of_names(&server), [""; 0]);
}

/// A waiter that gets the lock by a hand-over has a claim window of 5 minutes. A waiter that asks
/// the store has its whole ttl.
#[tokio::test]
async fn c3_a_waiter_checks_a_hand_over_across_a_clock_step() {
    let window = Duration::from_secs(300);
    let options = with_ttl(window * 12).with_op_timeout(window);
    let server = start();
    let first = connect(&server.url()).await;
    let second = connect(&server.url()).await;
    let directions = [None, Some(ClockDirection::Forward), Some(ClockDirection::Back)];
    for mode in MODES {
        for direction in directions {
            let held = mode.lock(&first, "a", options.clone()).await.unwrap();
            let locker = second.clone();
            let wanted = options.clone();
            let waiter = tokio::spawn(async move {
                let guard = mode.lock(&locker, "a", wanted).await.unwrap();
                (guard.remaining(), guard)
            });
            // The question goes through the waiter's own connection, so the waiter has its answer
            // by then.
            mode.until_waiting(&second, "a", 1).await;
            if let Some(direction) = direction {
                step(&server, direction);
            }
            held.release().await.unwrap();
            let (left, guard) = waiter.await.unwrap();
            // A waiter that believed the message would count the step as time that has passed.
            let proved = left <= window + STEP * 2;
            assert_eq!(
                proved,
                direction.is_none(),
                "{mode:?}, a step {direction:?}: {left:?} left"
            );
            guard.release().await.unwrap();
        }
    }
    for locker in [first, second] {
        locker.shutdown().await.unwrap();
    }
    assert_eq!(keys_of_names(&server), [""; 0]);
}
