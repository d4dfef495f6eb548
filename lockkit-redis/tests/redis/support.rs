//! Starts a server with a backend on it, and a second client that looks at the store directly.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lockkit_core::{
    Error, ErrorKind, Kind, LockName, LockOptions, Locker, Result,
    spi::{Attempt, Backend as _, Claim, ClaimSpec, Grant, Lease, Released, Wait},
    url::StoreUrl,
};
pub(crate) use lockkit_fixture::claims::{WakeSignal, busy, granted, mutex, spec as spec_for};
use lockkit_fixture::{ClockDirection, RedisServer, claims};
use lockkit_redis::{
    Config, Redis,
    redis::{
        AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult, aio::MultiplexedConnection,
    },
};
use tokio::time::{sleep, timeout};

use crate::scripts::{counted, exclusive};

/// Far longer than a server may hang in these tests, and so are the next ones. Where a lease must
/// end, the store ends it.
pub(crate) const TTL: Duration = Duration::from_secs(60);
pub(crate) const OP_TIMEOUT: Duration = Duration::from_secs(20);
/// The claim window of a claim that is so patient: the longest one.
pub(crate) const WINDOW: Duration = Duration::from_secs(10);
/// How often a waiter keeps all waiters of its client alive, and looks whether the lock is free.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// Every expected event comes within this time, or a test fails. No test waits for this time to
/// pass.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// How long a test waits to see that a server does not answer because it is paused or out of reach.
pub(crate) const MOMENT: Duration = Duration::from_millis(50);
/// How long a silent connection is trusted, where a test waits for the end of that time. It is
/// longer than a server hangs.
pub(crate) const TRUSTING: &str = "?connect_timeout=6s";
/// A little longer than that time.
pub(crate) const TRUST: Duration = Duration::from_millis(6_500);
/// How long a silent connection is trusted, where no test waits for the end of that time.
const LONG_TRUST: Duration = Duration::from_secs(30);

pub(crate) struct Store {
    pub(crate) redis: Redis,
    pub(crate) admin: Admin,
    pub(crate) server: RedisServer,
}

impl Store {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[], "").await
    }

    pub(crate) async fn start_with(args: &[&str], query: &str) -> Self {
        Self::on(RedisServer::start_with(args.iter().copied()).unwrap(), query).await
    }

    /// Starts a server whose clock can be set: see [`pass`](Self::pass).
    pub(crate) async fn start_with_clock() -> Self {
        Self::on(RedisServer::start_with_clock().unwrap(), "").await
    }

    pub(crate) async fn on(server: RedisServer, query: &str) -> Self {
        let redis = connect(&format!("{}{query}", server.url())).await.unwrap();
        let admin = Admin::to(&server).await;
        // The server knows the scripts from the start, so that requests can be counted and paused
        // exactly. A batch that it does not know is left over, which the tests of batches need.
        let scripts = exclusive::ALL.iter().chain(counted::ALL);
        for (_, script) in scripts.filter(|(name, _)| *name != "batch") {
            admin.ask::<()>(&["SCRIPT", "LOAD", script]).await;
        }
        Self { redis, admin, server }
    }

    pub(crate) fn claim(&self, name: &str) -> Box<dyn Claim> {
        self.redis.claim(spec(name)).unwrap()
    }

    /// A claim that waits, and the signal that counts its wake-ups.
    pub(crate) fn waiter(&self, name: &str) -> Waiter {
        waiter_for(self, spec(name))
    }

    /// The channel for messages to the backend, if no other backend is connected.
    pub(crate) async fn client_channel(&self) -> String {
        let channels: Vec<String> = self.admin.ask(&["PUBSUB", "CHANNELS"]).await;
        let [channel] = &channels[..] else { panic!("{channels:?}") };
        assert!(channel.starts_with("lockkit:wake:"), "{channel}");
        channel.clone()
    }

    /// Lets this much time pass at once, by the server's clock.
    pub(crate) fn pass(&self, time: Duration) {
        self.server.clock().unwrap().step(time, ClockDirection::Forward).unwrap();
    }

    /// Ends the leases of all holders of a name.
    pub(crate) async fn end_leases(&self, name: &LockName) {
        let base = format!("lockkit:{}:{{{}}}", name.kind(), name.as_str());
        match name.kind() {
            Kind::RwLock | Kind::Semaphore => {
                let holders = format!("{base}:holders");
                for holder in self.admin.ask::<Vec<String>>(&["ZRANGE", &holders, "0", "-1"]).await
                {
                    self.admin.ask::<()>(&["ZADD", &holders, "XX", "1", &holder]).await;
                }
            }
            _ => self.admin.ask::<()>(&["DEL", &base]).await,
        }
    }

    /// Until when the store counts each waiter as alive, in µs.
    pub(crate) async fn lives(&self, name: &LockName) -> BTreeMap<String, i64> {
        let key = format!("lockkit:{}:{{{}}}:live", name.kind(), name.as_str());
        self.admin.ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]).await
    }

    /// True if all waiters were kept alive since `before` was read.
    pub(crate) async fn live_longer(
        &self,
        name: &LockName,
        before: &BTreeMap<String, i64>,
    ) -> bool {
        let now = self.lives(name).await;
        before.iter().all(|(waiter, until)| now.get(waiter).is_some_and(|now| now > until))
    }

    /// Waits until the server has handled all that the backend has sent so far.
    pub(crate) async fn settle(&self) {
        self.redis.inspect(&mutex("settle")).await.unwrap();
    }
}

pub(crate) async fn connect(url: &str) -> Result<Redis> {
    let mut config = Config::from_url(StoreUrl::parse(url).unwrap())?;
    // Other URLs keep the default, so a test waits for a failover no longer than a user would.
    let is_one_server = url.starts_with("redis://") || url.starts_with("redis+unix://");
    if is_one_server && !url.contains("connect_timeout") {
        config = config.with_connect_timeout(LONG_TRUST)?;
    }
    Redis::connect(config).await
}

/// A locker whose claims compete in the store's own queue, without the process's gate.
pub(crate) fn locker(redis: Redis) -> Locker {
    let options = LockOptions::new().with_ttl(TTL).with_op_timeout(OP_TIMEOUT);
    Locker::new(redis).with_process_gate(false).with_defaults(options).unwrap()
}

/// Checks that a ticket gives no grant any more.
pub(crate) async fn assert_stale(locker: &Locker, ticket: &str) {
    let error = locker.resume(ticket).await.expect_err("a stale ticket gave a grant");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
}

pub(crate) fn spec(name: &str) -> ClaimSpec {
    spec_for(name, TTL, OP_TIMEOUT)
}

pub(crate) fn lock_key(name: &str) -> String {
    format!("lockkit:mutex:{{{name}}}")
}

/// The key of the last token of all names.
pub(crate) fn counter_key() -> String {
    "lockkit:token".to_owned()
}

pub(crate) fn queue_key(name: &str) -> String {
    format!("lockkit:mutex:{{{name}}}:queue")
}

pub(crate) fn live_key(name: &str) -> String {
    format!("lockkit:mutex:{{{name}}}:live")
}

pub(crate) fn lasts(lease: Lease) -> Duration {
    match lease {
        Lease::For(lasts) => lasts,
        other => panic!("{other:?}"),
    }
}

pub(crate) type Waiter = (Box<dyn Claim>, Arc<WakeSignal>);

/// A claim of this shape that waits, and its signal.
pub(crate) fn waiter_for(store: &Store, spec: ClaimSpec) -> Waiter {
    claims::waiter(&store.redis, spec)
}

/// Waiters in the order in which they came.
pub(crate) async fn queue(store: &Store, name: &str, length: usize) -> Vec<Waiter> {
    let mut waiters = Vec::new();
    for _ in 0..length {
        let (mut claim, signal) = store.waiter(name);
        assert!(busy(claim.attempt(Wait::Queue).await).0);
        waiters.push((claim, signal));
    }
    waiters
}

pub(crate) fn wakes(waiters: &[Waiter]) -> Vec<usize> {
    waiters.iter().map(|(_, signal)| signal.wakes()).collect()
}

pub(crate) async fn holder(store: &Store, name: &str) -> Box<dyn Claim> {
    let mut holder = store.claim(name);
    granted(holder.attempt(Wait::No).await);
    holder
}

/// Checks that nothing is left: no subscription, and no key but the token counter.
pub(crate) async fn assert_clean(store: &Store) {
    store.settle().await;
    assert!(store.admin.channels().await.is_empty());
    assert_eq!(store.admin.keys().await, [counter_key()]);
}

/// Attempts until granted, as the core would. Between attempts it waits for the signal, or for the
/// time to look again.
pub(crate) async fn wait_for(claim: &mut Box<dyn Claim>, signal: &WakeSignal) -> Grant {
    timeout(SOON, wait_for_long(claim, signal)).await.expect("not granted")
}

pub(crate) async fn wait_for_long(claim: &mut Box<dyn Claim>, signal: &WakeSignal) -> Grant {
    wait_for_long_or_err(claim, signal).await.unwrap()
}

pub(crate) async fn wait_for_long_or_err(
    claim: &mut Box<dyn Claim>,
    signal: &WakeSignal,
) -> Result<Grant> {
    loop {
        match bounded(claim.attempt(Wait::Queue)).await? {
            Attempt::Granted(grant) => return Ok(grant),
            Attempt::Busy { retry_after, .. } => {
                signal.heard_within(retry_after.unwrap()).await;
            }
        }
    }
}

/// Gives a request up after op_timeout, as the core does. One that is sent just when its connection
/// ends may get no answer.
pub(crate) async fn bounded<T>(request: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = timeout(OP_TIMEOUT, request).await;
    answer.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "no answer")))
}

/// Releases again until no request of the owner can arrive any more.
pub(crate) async fn finally_released(claim: &mut Box<dyn Claim>) -> Released {
    let released = async {
        loop {
            match bounded(claim.release()).await {
                Ok(released) => return released,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, released).await.unwrap()
}

/// Kills all connections but the admin's.
pub(crate) async fn kill_clients(store: &Store) {
    store.admin.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    store.admin.ask::<()>(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]).await;
}

/// How many connections the server has accepted.
pub(crate) async fn connections_made(store: &Store) -> u64 {
    let stats: String = store.admin.ask(&["INFO", "stats"]).await;
    let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    line.unwrap().parse().unwrap()
}

/// Leaves the backend without a connection. Returns a waiter that has heard of that.
pub(crate) async fn lose_the_connection(store: &Store) -> Waiter {
    let (mut waiter, signal) = store.waiter("busy");
    granted(store.claim("busy").attempt(Wait::No).await);
    busy(waiter.attempt(Wait::Queue).await);
    kill_clients(store).await;
    signal.heard().await;
    (waiter, signal)
}

/// Asks only when it is woken, because requests are counted.
pub(crate) async fn lock_when_woken(claim: &mut Box<dyn Claim>, signal: &WakeSignal) -> Grant {
    signal.heard().await;
    granted(claim.attempt(Wait::Queue).await)
}

/// Attempts until granted. Between attempts it waits for the signal alone: without a wake-up it
/// fails.
pub(crate) async fn lock(claim: &mut Box<dyn Claim>, signal: &WakeSignal) -> Grant {
    loop {
        match claim.attempt(Wait::Queue).await.unwrap() {
            Attempt::Granted(grant) => return grant,
            Attempt::Busy { .. } => signal.heard().await,
        }
    }
}

/// A second client, with the plain client library.
#[derive(Clone)]
pub(crate) struct Admin(MultiplexedConnection);

impl Admin {
    pub(crate) async fn to(server: &RedisServer) -> Self {
        let client = Client::open(server.url()).unwrap();
        let patience = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SOON))
            .set_response_timeout(Some(SOON));
        Self(client.get_multiplexed_async_connection_with_config(&patience).await.unwrap())
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_ask(words).await.unwrap()
    }

    pub(crate) async fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = Cmd::new();
        words.iter().for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut self.0.clone()).await
    }

    /// All keys but those that say on which keys lockers agree.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys = self.all_keys().await;
        keys.retain(|key| !key.ends_with(":keys"));
        keys
    }

    pub(crate) async fn all_keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
        keys.sort();
        keys
    }

    /// How often the server has run a command since its statistics were reset.
    pub(crate) async fn calls(&self, command: &str) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]).await;
        let line =
            stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// The number of the backend's requests, without the commands inside its scripts.
    pub(crate) async fn requests(&self) -> u64 {
        let mut requests = 0;
        for command in ["evalsha", "eval", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe"]
        {
            requests += self.calls(command).await;
        }
        requests
    }

    pub(crate) async fn reset_calls(&self) {
        self.ask::<()>(&["CONFIG", "RESETSTAT"]).await;
    }

    /// All channels but those on which clients get their messages.
    pub(crate) async fn channels(&self) -> Vec<String> {
        let mut channels: Vec<String> = self.ask(&["PUBSUB", "CHANNELS"]).await;
        channels.retain(|channel| !channel.starts_with("lockkit:wake:"));
        channels
    }
}
