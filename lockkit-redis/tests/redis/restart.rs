//! Tests a server that is killed and starts again with its data: while many claims are busy, and
//! while a ticket is under way.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Mode, Released, Wait},
};
use lockkit_fixture::{ClockDirection, RedisOptions, RedisServer, claims::until};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::support::*;

/// With these arguments, a server writes each change to disk before it answers.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// How many claims are busy on one connection. Two share each name.
const CLAIMS: usize = 40;
/// How many grants there are before the server is killed, and after it is back.
const ROUNDS: usize = 100;

/// The holder of each name, with the last token of the name.
#[derive(Default)]
struct Holders(Mutex<HashMap<LockName, (Option<OwnerId>, u64)>>);

impl Holders {
    fn granted(&self, name: &LockName, owner: OwnerId, token: u64) {
        let mut all = self.0.lock().unwrap();
        let (holder, last) = all.entry(name.clone()).or_default();
        assert_eq!(*holder, None, "two owners hold {name}");
        assert!(token > *last, "{name}: {token} after {last}");
        *holder = Some(owner);
        *last = token;
    }

    fn released(&self, name: &LockName) {
        self.0.lock().unwrap().entry(name.clone()).or_default().0 = None;
    }
}

/// Mutexes and semaphores of one permit.
fn spec_of(at: usize) -> ClaimSpec {
    let limit = std::num::NonZeroU32::MIN;
    let (kind, mode) = match at % 2 {
        0 => (Kind::Mutex, Mode::Exclusive),
        _ => (Kind::Semaphore, Mode::Permits { count: limit, limit }),
    };
    let name = LockName::new(kind, &format!("name-{}", at % (CLAIMS / 2))).unwrap();
    ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT)
}

/// Acquires and releases until told to stop. Counts the grants.
async fn compete(
    mut claim: Box<dyn Claim>,
    spec: ClaimSpec,
    holders: Arc<Holders>,
    grants: watch::Sender<usize>,
    stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        match claim.attempt(Wait::No).await {
            Ok(Attempt::Granted(grant)) => {
                holders.granted(&spec.name, spec.owner, grant.token.get());
                tokio::task::yield_now().await;
                holders.released(&spec.name);
                // An earlier release, whose answer was lost, may have freed it.
                let _ = finally_released(&mut claim).await;
                grants.send_modify(|grants| *grants += 1);
            }
            Ok(Attempt::Busy { .. }) => tokio::task::yield_now().await,
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                let _ = finally_released(&mut claim).await;
            }
        }
    }
}

#[tokio::test]
async fn c1_c4_c5_a_server_that_restarts_under_batches_keeps_the_locks_of_their_holders() {
    let mut store = Store::start_with(&DURABLE, "").await;
    // It is never renewed, and outlives the test.
    let mut holder = store.redis.claim(spec_for("kept", TTL * 10, OP_TIMEOUT)).unwrap();
    let token = granted(holder.attempt(Wait::No).await).token;
    let holders = Arc::new(Holders::default());
    let (grants, mut seen) = watch::channel(0);
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for at in 0..CLAIMS {
        let spec = spec_of(at);
        let claim = store.redis.claim(spec.clone()).unwrap();
        tasks.spawn(compete(claim, spec, Arc::clone(&holders), grants.clone(), stopped.clone()));
    }
    for _ in 0..3 {
        let next = *seen.borrow() + ROUNDS;
        timeout(SOON, seen.wait_for(|grants| *grants >= next)).await.expect("no grants").unwrap();
        store.server.restart().unwrap();
    }
    let next = *seen.borrow() + ROUNDS;
    timeout(SOON, seen.wait_for(|grants| *grants >= next)).await.expect("no grants").unwrap();
    stop.send_replace(true);
    while let Some(ended) = timeout(SOON, tasks.join_next()).await.expect("a claim hangs") {
        ended.unwrap();
    }
    assert_eq!(granted(holder.attempt(Wait::No).await).token, token, "the restart lost a lock");
    assert_eq!(finally_released(&mut holder).await, Released::Freed);
    let admin = Admin::to(&store.server).await;
    assert_eq!(admin.keys().await, [counter_key()]);
}

/// Catches a ticket whose grant ends with the memory of the server, and a used ticket that works
/// again after a restart.
#[tokio::test]
async fn c2_c4_a_ticket_outlives_a_restart_of_the_server_and_works_once() {
    let Store { redis, mut server, .. } = Store::start_with(&DURABLE, "").await;
    let first = locker(redis);
    let guards = [
        first.mutex("a").unwrap().lock().await.unwrap(),
        first.rw_lock("a").unwrap().read().await.unwrap(),
    ];
    let mut tickets = Vec::new();
    for guard in guards {
        let token = guard.fencing_token();
        tickets.push((guard.into_ticket().await.unwrap(), token));
    }
    server.restart().unwrap();
    let next = locker(connect(&server.url()).await.unwrap());
    let mut resumed = Vec::new();
    for (ticket, token) in &tickets {
        let guard = next.resume(ticket).await.unwrap();
        assert_eq!(guard.fencing_token(), *token);
        assert!(guard.is_held() && guard.remaining() > TTL / 2);
        assert_stale(&next, ticket).await;
        resumed.push(guard);
    }

    server.restart().unwrap();
    let other = locker(connect(&server.url()).await.unwrap());
    for (ticket, _) in &tickets {
        assert_stale(&other, ticket).await;
    }
    assert!(other.mutex("a").unwrap().try_lock().await.unwrap().is_none());
    assert!(other.rw_lock("a").unwrap().try_write().await.unwrap().is_none());
    for guard in resumed {
        // The first request finds out that the connection has ended.
        until("it is renewed", async || guard.renew().await.is_ok()).await;
        guard.release().await.unwrap();
    }
    let last = [
        other.mutex("a").unwrap().lock().await.unwrap(),
        other.rw_lock("a").unwrap().write().await.unwrap(),
    ];
    for (guard, (_, token)) in last.into_iter().zip(&tickets) {
        assert!(guard.fencing_token() > *token);
        guard.release().await.unwrap();
    }
}

/// Catches a lease that begins again when the server starts, and a resume that takes a free lock.
#[tokio::test]
async fn c2_c3_a_ticket_whose_lease_ended_while_the_server_was_down_is_refused() {
    let options = RedisOptions::default().with_args(DURABLE).with_clock();
    let server = RedisServer::start_as(options).unwrap();
    let Store { redis, mut server, .. } = Store::on(server, "").await;
    let first = locker(redis);
    let guard = first.mutex("a").unwrap().lock().await.unwrap();
    let token = guard.fencing_token();
    let ticket = guard.into_ticket().await.unwrap();
    // A paused server can't remove the lock before it is killed.
    server.pause().unwrap();
    server.clock().unwrap().step(TTL, ClockDirection::Forward).unwrap();
    server.restart().unwrap();
    let next = locker(connect(&server.url()).await.unwrap());
    assert_stale(&next, &ticket).await;
    let guard = next.mutex("a").unwrap().lock().await.unwrap();
    assert!(guard.fencing_token() > token);
    assert_stale(&next, &ticket).await;
    guard.release().await.unwrap();
}

/// A full server evicts the keys that were not used for long, and the counter never lapses.
#[tokio::test]
async fn c4_a_counter_that_the_server_evicts_does_not_lower_the_tokens() {
    let store = Store::start().await;
    let mut claim = store.claim("a");
    let mut last = granted(claim.attempt(Wait::No).await).token;
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).await;
    for _ in 0..3 {
        evict_the_counter(&store).await;
        let token = granted(claim.attempt(Wait::No).await).token;
        assert!(token > last, "{token:?} after {last:?}");
        last = token;
        assert_eq!(claim.release().await.unwrap(), Released::Freed);
    }
}

/// Fills the server until it evicts the counter, and then gives it memory again.
async fn evict_the_counter(store: &Store) {
    let info: String = store.admin.ask(&["INFO", "memory"]).await;
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let most: u64 = used.trim().parse::<u64>().unwrap() + 1_000_000;
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", &most.to_string()]).await;
    let text = "x".repeat(10_000);
    let evicted = async {
        for at in 0_u64.. {
            store.admin.ask::<()>(&["SET", &format!("filler-{at}"), &text]).await;
            if store.admin.ask::<u64>(&["EXISTS", &counter_key()]).await == 0 {
                break;
            }
        }
    };
    timeout(SOON, evicted).await.expect("the server keeps the counter");
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
}
