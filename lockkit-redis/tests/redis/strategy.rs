//! Tests that lockers of one prefix agree on the keys of mutexes. Raw keys and escaped keys would
//! not exclude each other.

use lockkit_core::{
    ErrorKind,
    spi::{Backend as _, Wait},
};
use lockkit_fixture::RedisServer;

use crate::support::*;

const KEY: &str = "lockkit:keys";
const QUERIES: [(&str, &str); 2] = [("escaped", "?keys=escaped"), ("raw", "?keys=raw")];

#[tokio::test]
async fn c1_a_prefix_with_raw_keys_is_refused_to_lockers_with_escaped_ones_and_the_other_way_round()
{
    for (ours, other) in [(0, 1), (1, 0)] {
        let (first, query) = QUERIES[ours];
        let (second, refused) = QUERIES[other];
        let store = Store::start_with(&[], query).await;
        let mut held = store.claim("a");
        granted(held.attempt(Wait::No).await);
        let url = store.server.url();
        let error = connect(&format!("{url}{refused}")).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.is_temporary()),
            (ErrorKind::InvalidOption, false),
            "{error}"
        );
        let text = error.to_string();
        for word in [&format!("keys={first}"), &format!("keys={second}"), "\"lockkit\"", KEY] {
            assert!(text.contains(word), "{text}");
        }
        connect(&format!("{url}{query}")).await.unwrap();
        connect(&format!("{url}{refused}&prefix=other")).await.unwrap();
        // The error message advises this.
        store.admin.ask::<()>(&["DEL", KEY]).await;
        connect(&format!("{url}{refused}")).await.unwrap();
        assert_eq!(store.admin.ask::<String>(&["GET", KEY]).await, second);
        connect(&format!("{url}{query}")).await.unwrap_err();
    }
}

/// A server that restarts empty forgets the keys on which its lockers have agreed. Each locker
/// writes them again with its next connection.
#[tokio::test]
async fn c1_a_reconnected_locker_records_its_key_strategy_again() {
    let store = Store::start_with(&[], "?keys=raw").await;
    store.admin.ask::<()>(&["FLUSHALL"]).await;
    kill_clients(&store).await;
    while store.redis.inspect(&mutex("a")).await.is_err() {}
    assert_eq!(store.admin.ask::<String>(&["GET", KEY]).await, "raw");
    // Another locker was faster.
    store.admin.ask::<()>(&["SET", KEY, "escaped"]).await;
    kill_clients(&store).await;
    let error = loop {
        match store.claim("a").attempt(Wait::No).await {
            Err(error) if error.is_temporary() => {}
            answer => break answer.unwrap_err(),
        }
    };
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
}

#[tokio::test]
async fn c13_an_agreement_of_a_newer_lockkit_is_refused_and_not_changed() {
    let server = RedisServer::start().unwrap();
    server.ask(["SET", KEY, "lockkit/2 hashed"]).unwrap();
    let error = connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NewerFormat, "{error}");
    assert!(error.to_string().contains(KEY), "{error}");
    assert_eq!(server.ask(["GET", KEY]).unwrap().text(), "lockkit/2 hashed");
}

/// The holders on this server must be able to connect again.
#[tokio::test]
async fn c10_a_connection_opens_although_a_full_server_can_not_store_its_key() {
    let server = RedisServer::start_with(["--maxmemory", "1mb"]).unwrap();
    let redis = connect(&server.url()).await.unwrap();
    assert!(redis.inspect(&mutex("a")).await.unwrap().holders.is_empty());
    assert_eq!(server.ask(["EXISTS", KEY]).unwrap().text(), "0");
}
