//! A failover without the data, which shows the cost of asynchronous replication.

use std::time::Duration;

use lockkit::{ErrorKind, Released, redis::redis, spi::LossReason};
use lockkit_conformance::proxy::Proxy;
use lockkit_fixture::{ClockDirection, RedisOptions, RedisServer};
use tokio::task::block_in_place;

use crate::support::*;

/// A lease longer than the failover, which takes about a second.
const TTL: Duration = Duration::from_secs(4);

/// How long a request waits for the answer of a disconnected replica.
const UNHEARD: Duration = Duration::from_millis(300);

/// A primary, and a replica that gets the primary's writes until it is disconnected.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    proxy: Proxy,
}

impl Pair {
    async fn start(replica: RedisOptions) -> Self {
        let primary = RedisServer::start().unwrap();
        let proxy = Proxy::start(([127, 0, 0, 1], primary.port()).into()).await.unwrap();
        let options = replica.with_primary(proxy.addr().port());
        let replica = block_in_place(|| {
            let replica = RedisServer::start_as(options).unwrap();
            replica.wait_in_sync().unwrap();
            replica
        });
        Self { primary, replica, proxy }
    }

    fn cut_off(&self) {
        self.proxy.set(|toxics| toxics.down.hold = true);
    }

    /// Whether the replica confirms a write within this time.
    async fn confirms_within(&self, patience: Duration) -> bool {
        let client = redis::Client::open(self.primary.url()).unwrap();
        let settings = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection =
            client.get_multiplexed_async_connection_with_config(&settings).await.unwrap();
        // WAIT concerns only the writes of its own connection.
        let mut ask = redis::pipe();
        ask.cmd("SET").arg("marker").arg("x").ignore();
        ask.cmd("WAIT").arg(1).arg(u64::try_from(patience.as_millis()).unwrap());
        let (confirmed,): (u32,) = ask.query_async(&mut connection).await.unwrap();
        confirmed == 1
    }

    fn fail_over(&mut self) {
        self.primary.kill().unwrap();
        self.replica.promote().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_a_failover_that_loses_a_lock_grants_it_again_and_the_token_stops_the_first_holder() {
    let mut pair = Pair::start(RedisOptions::default()).await;
    let first = connect(&pair.primary.url()).await;
    let register = Register::default();
    assert!(pair.confirms_within(SOON).await);
    pair.cut_off();
    let stale = Mode::Mutex.lock(&first, "a", with_ttl(TTL)).await.unwrap();
    assert!(register.write(stale.fencing_token()));
    assert!(!pair.confirms_within(UNHEARD).await, "the replica must not hear of the grant");
    pair.fail_over();

    let second = connect(&pair.replica.url()).await;
    let fresh = Mode::Mutex.try_lock(&second, "a", with_ttl(TTL)).await.unwrap();
    let fresh = fresh.expect("the new primary never heard of the first grant");
    assert!(
        stale.is_held(),
        "both believe that they hold it: this is the exception async_failover"
    );
    assert!(fresh.fencing_token() > stale.fencing_token(), "the token must rise all the same");
    assert!(register.write(fresh.fencing_token()));
    assert!(!register.write(stale.fencing_token()), "the resource refuses the stale holder");

    assert_eq!(
        stale.lost().wait().await,
        LossReason::Expired,
        "the loss signal comes by the local deadline"
    );
    assert!(fresh.is_held());
    fresh.release().await.unwrap();
    assert_eq!(keys_of_names(&pair.replica), [""; 0]);
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_with_wait_replicas_a_grant_that_no_replica_has_is_an_error_and_leaves_nothing() {
    let mut pair = Pair::start(RedisOptions::default()).await;
    let url = format!("{}?wait_replicas=1&wait_timeout=1500ms", pair.primary.url());
    let first = connect(&url).await;
    for mode in MODES {
        let kept = mode.lock(&first, "kept", with_ttl(TTL * 10)).await.unwrap();
        std::mem::forget(kept); // its holder goes down with the primary
    }
    pair.cut_off();
    for mode in MODES {
        let error = mode.try_lock(&first, "a", with_ttl(TTL)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{mode:?}");
        assert!(error.to_string().contains("wait_replicas"), "{mode:?}: {error}");
        assert!(mode.inspect(&first, "a").await.holders.is_empty(), "{mode:?}");
    }
    pair.fail_over();
    let second = connect(&pair.replica.url()).await;
    for mode in MODES {
        let kept = mode.try_lock(&second, "kept", with_ttl(TTL)).await.unwrap();
        assert!(kept.is_none(), "{mode:?}: what was confirmed is known to the new primary");
        let free = mode.try_lock(&second, "a", with_ttl(TTL)).await.unwrap();
        free.unwrap().release().await.unwrap();
    }
    second.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_new_primary_whose_clock_is_behind_loses_the_order_of_tokens_with_the_data() {
    let mut pair = Pair::start(RedisOptions::default().with_clock()).await;
    pair.replica.clock().unwrap().step(Duration::from_secs(60), ClockDirection::Back).unwrap();
    let first = connect(&pair.primary.url()).await;
    let known = Mode::Mutex.lock(&first, "known", with_ttl(TTL)).await.unwrap();
    assert!(pair.confirms_within(SOON).await);
    pair.cut_off();
    let lost = Mode::Mutex.lock(&first, "lost", with_ttl(TTL)).await.unwrap();
    let known_token = known.fencing_token();
    let lost_token = lost.fencing_token();
    known.release().await.unwrap();
    pair.fail_over();

    let second = connect(&pair.replica.url()).await;
    let register = Register::default();
    assert!(register.write(lost_token));
    let fresh = Mode::Mutex.try_lock(&second, "lost", with_ttl(TTL)).await.unwrap().unwrap();
    assert!(
        fresh.fencing_token() < lost_token,
        "neither the last token nor the time reaches the new primary"
    );
    assert!(
        !register.write(fresh.fencing_token()),
        "the resource stays safe, and the new holder can't work"
    );
    fresh.release().await.unwrap();

    // Where the last token has reached the replica, tokens rise whatever the clock shows. The lock
    // remains until it lapses by the new primary's clock, but an operator need not wait for that.
    let mutex = second.mutex("known").unwrap();
    assert_eq!(mutex.force_release(known_token).await.unwrap(), Released::Freed);
    let next = Mode::Mutex.try_lock(&second, "known", with_ttl(TTL)).await.unwrap().unwrap();
    assert!(next.fencing_token() > known_token);
    next.release().await.unwrap();
    second.shutdown().await.unwrap();
}
