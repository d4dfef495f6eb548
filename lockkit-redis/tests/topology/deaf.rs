//! Tests waiters on a cluster whose channel can't be opened.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use lockkit_core::{
    Kind, LockName, OwnerId,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Mode, Released, Wait, Wake},
};
use lockkit_fixture::claims::given_up;
use lockkit_redis::Redis;
use tokio::time::timeout;

use crate::{cluster::Nodes, proxy::Proxy, support::*};

type Shape = (Kind, Mode);

const MUTEX: Shape = (Kind::Mutex, Mode::Exclusive);

fn waiter(redis: &Redis, (kind, mode): Shape) -> Waiter {
    let signal = Arc::new(WakeSignal::default());
    let name = LockName::new(kind, "a").unwrap();
    let mut spec = ClaimSpec::new(name, OwnerId::random(), mode, TTL, OP_TIMEOUT);
    spec.wake = Wake::to(&signal);
    (redis.claim(spec).unwrap(), signal)
}

async fn queued(redis: &Redis, shape: Shape) -> Waiter {
    let (mut claim, signal) = waiter(redis, shape);
    assert!(busy(claim.attempt(Wait::Queue).await).0);
    (claim, signal)
}

async fn holder(redis: &Redis, shape: Shape) -> Box<dyn Claim> {
    let (mut claim, _) = waiter(redis, shape);
    granted(claim.attempt(Wait::No).await);
    claim
}

/// The lock is free. The second waiter looks at once, because a hand-over lasts only for a claim
/// window.
async fn serve_in_order((mut first, signal): Waiter, (mut second, second_signal): Waiter) {
    assert!(busy(second.attempt(Wait::Queue).await).0);
    wait_for(&mut first, &signal).await;
    assert!(busy(second.attempt(Wait::Queue).await).0);
    release(first).await;
    wait_for(&mut second, &second_signal).await;
    release(second).await;
}

async fn release(mut claim: Box<dyn Claim>) {
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

/// A connection to the node that has this name. It stays open, whatever the node refuses.
async fn admin(nodes: &Nodes, (kind, _): Shape) -> Admin {
    let key = if kind == Kind::Mutex { lock_key("a") } else { format!("lockkit:{kind}:{{a}}") };
    let slot = nodes.cluster.slot_of(&key).unwrap();
    Admin::to(&nodes.cluster.nodes()[nodes.cluster.owner_of(slot).unwrap()]).await
}

async fn refuse_connections(admin: &Admin) {
    admin.ask::<()>(&["CONFIG", "SET", "maxclients", "1"]).await;
}

async fn stat(admin: &Admin, section: &str, field: &str) -> u64 {
    let stats: String = admin.ask(&["INFO", section]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("{field}:")));
    line.unwrap().parse().unwrap()
}

async fn allow_connections(admin: &Admin) {
    admin.ask::<()>(&["CONFIG", "SET", "maxclients", "10000"]).await;
}

/// A locker whose channel is open, because one of its claims has waited.
async fn locker_that_hears(nodes: &Nodes, shape: Shape) -> Redis {
    let redis = connect(&nodes.cluster.url()).await.unwrap();
    let (mut claim, _) = queued(&redis, shape).await;
    given_up(claim.release()).await;
    redis
}

#[tokio::test]
async fn c12_a_waiter_without_a_channel_is_served_before_later_ones() {
    let nodes = Nodes::start().await;
    let permits =
        Mode::Permits { count: std::num::NonZeroU32::MIN, limit: std::num::NonZeroU32::MIN };
    for shape in [
        MUTEX,
        (Kind::Election, Mode::Exclusive),
        (Kind::RwLock, Mode::Exclusive),
        (Kind::Semaphore, permits),
    ] {
        let admin = admin(&nodes, shape).await;
        let redis = connect(&nodes.cluster.url()).await.unwrap();
        let holder = holder(&redis, shape).await;
        let other = locker_that_hears(&nodes, shape).await;
        refuse_connections(&admin).await;
        let first = queued(&redis, shape).await;
        let second = queued(&other, shape).await;
        release(holder).await;
        serve_in_order(first, second).await;
        allow_connections(&admin).await;
    }
}

/// The waiter's connections broke, and only the one for requests could be opened again.
#[tokio::test]
async fn c12_a_waiter_that_lost_its_channel_is_served_before_later_ones() {
    let nodes = Nodes::start().await;
    let admin = admin(&nodes, MUTEX).await;
    let other = connect(&nodes.cluster.url()).await.unwrap();
    let holder = holder(&other, MUTEX).await;
    let redis = connect(&nodes.cluster.url()).await.unwrap();
    let (mut first, signal) = queued(&redis, MUTEX).await;
    let clients: String = admin.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    let [client] = clients.lines().collect::<Vec<_>>().try_into().unwrap();
    let id = client.strip_prefix("id=").unwrap().split(' ').next().unwrap();
    let (mut warm, _) = queued(&other, MUTEX).await;
    given_up(warm.release()).await;

    let clients = stat(&admin, "clients", "connected_clients").await;
    let clients = clients + stat(&admin, "clients", "cluster_connections").await;
    admin.ask::<()>(&["CONFIG", "SET", "maxclients", &(clients - 1).to_string()]).await;
    admin.ask::<()>(&["CLIENT", "KILL", "ID", id]).await;
    signal.heard().await;
    // Until the server has closed the two old connections, it may refuse the new one, too.
    let again = async {
        while first.attempt(Wait::Queue).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, again).await.expect("the waiter's locker finds no way to the node");
    assert!(
        stat(&admin, "stats", "rejected_connections").await > 0,
        "the channel was opened again"
    );
    let second = queued(&other, MUTEX).await;
    release(holder).await;
    serve_in_order((first, signal), second).await;
}

#[tokio::test]
async fn c8_a_waiter_gets_a_lock_that_is_free_while_its_channel_hangs() {
    let nodes = Nodes::start().await;
    let owner = nodes.cluster.owner_of(nodes.slot("a")).unwrap();
    let node = &nodes.cluster.nodes()[owner];
    let proxy = Proxy::to(node.port()).await;
    node.ask(["CONFIG", "SET", "cluster-announce-port", &proxy.port.to_string()]).unwrap();
    let op_timeout = Duration::from_secs(1);
    let redis =
        connect(&format!("redis+cluster://127.0.0.1:{}/?connect_timeout=16s", node.port())).await;
    let redis = redis.unwrap();
    let holder = holder(&redis, MUTEX).await;
    proxy.hang.store(true, Ordering::SeqCst);

    let mut waiter = redis.claim(spec_for("a", TTL, op_timeout)).unwrap();
    // The core limits each attempt in the same way.
    let queued = async {
        while !matches!(timeout(op_timeout, waiter.attempt(Wait::Queue)).await, Ok(Ok(_))) {}
    };
    timeout(SOON, queued).await.expect("the waiter is not queued while its channel hangs");
    assert!(proxy.hung.load(Ordering::SeqCst) > 0, "the channel does not hang");
    release(holder).await;
    let lock = async {
        loop {
            if let Ok(Ok(Attempt::Granted(_))) =
                timeout(op_timeout, waiter.attempt(Wait::Queue)).await
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, lock).await.expect("the waiter does not get the lock while its channel hangs");
    release(waiter).await;
}

#[tokio::test]
async fn c8_a_channel_that_can_not_be_opened_is_tried_once_in_a_while_and_used_once_it_is_open() {
    let nodes = Nodes::start().await;
    let admin = admin(&nodes, MUTEX).await;
    let holder = holder(&nodes.redis, MUTEX).await;
    let start = Instant::now();
    refuse_connections(&admin).await;
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(queued(&nodes.redis, MUTEX).await);
    }
    for _ in 0..50 {
        for (waiter, _) in &mut waiters {
            busy(waiter.attempt(Wait::Queue).await);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let refused = stat(&admin, "stats", "rejected_connections").await;
    // Once in each second.
    let enough = 1 + start.elapsed().as_secs();
    assert!((1..=enough).contains(&refused), "tried {refused} times, and {enough} times is enough");

    allow_connections(&admin).await;
    for (waiter, _) in &mut waiters {
        given_up(waiter.release()).await;
    }
    let heard = async {
        loop {
            // A waiter that is there when the channel is opened may still poll.
            let (mut claim, _) = queued(&nodes.redis, MUTEX).await;
            let channels: Vec<String> = admin.ask(&["PUBSUB", "SHARDCHANNELS"]).await;
            given_up(claim.release()).await;
            if !channels.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, heard).await.expect("the channel is not opened again");
    let (mut next, signal) = queued(&nodes.redis, MUTEX).await;
    release(holder).await;
    // The signal alone wakes this waiter.
    lock(&mut next, &signal).await;
    release(next).await;
    nodes.assert_clean().await;
}
