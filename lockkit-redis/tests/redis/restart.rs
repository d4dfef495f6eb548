//! Tests a server that is killed and starts again with its data, while many claims are busy.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Mode, Released, Wait},
};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use crate::support::*;

/// How many claims are busy on one connection. Two share each name.
const CLAIMS: usize = 40;
/// How many grants there are before the server is killed, and after it is back.
const ROUNDS: usize = 400;

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
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut store = Store::start_with(&durable, "").await;
    let mut holder = store.claim("kept");
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
