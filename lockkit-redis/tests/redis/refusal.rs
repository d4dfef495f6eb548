//! Tests servers that can't be used, and errors that say why.

use std::time::Duration;

use lockkit_core::{
    Error, ErrorKind, FencingToken,
    spi::{Backend as _, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::RedisServer;
use lockkit_fixture::claims::given_up;
use tokio::time::timeout;

use crate::{proxy::Proxy, support::*};

async fn refused(url: &str) -> Error {
    let error = connect(url).await.unwrap_err();
    let texts = format!("{error} {error:?}");
    assert!(!texts.contains("hunter2"), "{texts}");
    assert!(!error.is_outcome_unknown(), "{error}");
    assert_eq!(error.backend(), Some("redis"));
    error
}

#[tokio::test]
async fn c13_a_wrong_or_missing_password_is_an_authentication_error() {
    for args in [
        &["--requirepass", "right"][..],
        &["--requirepass", "right", "--rename-command", "HELLO", ""],
    ] {
        let server = RedisServer::start_with(args.iter().copied()).unwrap();
        for login in ["", ":hunter2@", "nobody:hunter2@"] {
            let error = refused(&format!("redis://{login}127.0.0.1:{}/", server.port())).await;
            assert_eq!(error.kind(), ErrorKind::Authentication, "{login}: {error}");
        }
        connect(&format!("redis://:right@127.0.0.1:{}/", server.port())).await.unwrap();
    }
}

#[tokio::test]
async fn c13_a_password_is_not_shown_by_a_server_that_quotes_it() {
    let args =
        ["--requirepass", "right", "--rename-command", "HELLO", "", "--rename-command", "AUTH", ""];
    let server = RedisServer::start_with(args).unwrap();
    refused(&format!("redis://:hunter2@127.0.0.1:{}/", server.port())).await;
}

#[tokio::test]
async fn c13_a_closed_port_a_silent_server_and_a_missing_socket_are_unavailable() {
    // No server listens there. A port that was free a moment ago may be another test's by now.
    let error = refused("redis://:hunter2@127.0.0.1:1/").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_temporary() && error.to_string().contains("127.0.0.1:1"), "{error}");

    let server = RedisServer::start().unwrap();
    server.pause().unwrap();
    let error = refused(&format!("{}?connect_timeout=50ms", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("50ms (connect_timeout)"), "{error}");

    let error = refused("redis+unix:///nowhere/redis.sock").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn c13_a_server_that_falls_silent_is_unavailable_whatever_is_asked() {
    let store = Store::start_with(&[], TRUSTING).await;
    let proxy = Proxy::to(store.server.port()).await;
    proxy.lose.set(b"CONFIG").unwrap();
    let error = timeout(SOON, refused(&proxy.url(TRUSTING))).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);

    store.server.pause().unwrap();
    let name = mutex("a");
    let error = timeout(SOON, store.redis.inspect(&name)).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, false));
    store.server.resume().unwrap();
    store.settle().await;
    store.server.pause().unwrap();
    let forced = store.redis.force_release(&name, FencingToken::new(1));
    let error = timeout(SOON, forced).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_outcome_unknown()), (ErrorKind::Unavailable, true));
}

#[tokio::test]
async fn a_unix_socket_works() {
    let server = RedisServer::start().unwrap();
    let redis = connect(&format!("redis+unix://{}", server.socket().display())).await.unwrap();
    let mut claim = redis.claim(spec("a")).unwrap();
    granted(claim.attempt(Wait::No).await);
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn c13_something_else_on_the_port_is_no_redis() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = refused(&format!("redis://:hunter2@127.0.0.1:{port}/?connect_timeout=1s")).await;
    assert!(matches!(error.kind(), ErrorKind::Unexpected | ErrorKind::Unavailable), "{error:?}");
}

#[tokio::test]
async fn c13_a_database_that_does_not_exist_is_a_url_error() {
    let server = RedisServer::start().unwrap();
    let error = refused(&format!("{}99", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
}

#[tokio::test]
async fn c13_missing_rights_are_named() {
    let store = Store::start().await;
    for rules in [
        &["~*", "&*", "+@all", "-evalsha", "-eval"][..],
        &["~*", "&*", "+@all", "-set"],
        &["~other*", "&*", "+@all"],
    ] {
        let rules: Vec<_> = ["ACL", "SETUSER", "u", "reset", "on", ">hunter2"]
            .iter()
            .chain(rules)
            .copied()
            .collect();
        store.admin.ask::<()>(&rules).await;
        let redis = connect(&format!("redis://u:hunter2@127.0.0.1:{}/", store.server.port()))
            .await
            .unwrap();
        let mut claim = redis.claim(spec("a")).unwrap();
        let error = claim.attempt(Wait::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(!error.is_outcome_unknown());
        assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
        assert!(store.admin.ask::<u64>(&["EXISTS", &lock_key("a")]).await == 0);
    }
}

/// Catches an error that says that nothing is left, although the claim has a place in the queue.
#[tokio::test]
async fn c5_a_claim_that_the_server_has_queued_before_it_refused_says_so() {
    let store = Store::start().await;
    let _holder = holder(&store, "a").await;
    let user = ["ACL", "SETUSER", "u", "reset", "on", ">hunter2", "~*", "&*", "+@all", "-pexpire"];
    store.admin.ask::<()>(&user).await;
    let redis = connect(&format!("redis://u:hunter2@127.0.0.1:{}/", store.server.port())).await;
    let mut claim = redis.unwrap().claim(spec("a")).unwrap();
    let error = claim.attempt(Wait::Queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.is_outcome_unknown(), "{error}");
    assert_eq!(store.admin.ask::<u64>(&["ZCARD", &queue_key("a")]).await, 1, "it shows nothing");
    assert_eq!(claim.release().await.unwrap(), Released::NotHeld);
    assert_eq!(store.admin.ask::<u64>(&["ZCARD", &queue_key("a")]).await, 0);
}

#[tokio::test]
async fn c13_a_full_server_is_full_and_still_lets_go() {
    let store = Store::start().await;
    let mut held = store.claim("held");
    granted(held.attempt(Wait::No).await);
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "1mb"]).await;
    let mut claim = store.claim("a");
    let error = claim.attempt(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}");
    assert!(error.is_temporary() && !error.is_outcome_unknown());
    assert!(matches!(held.renew(None).await.unwrap(), RenewalOutcome::Alive(_)));
    assert_eq!(held.release().await.unwrap(), Released::Freed);
    store.admin.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
    granted(claim.attempt(Wait::No).await);
}

#[tokio::test]
async fn c13_a_replica_is_refused_and_a_demoted_primary_is_left() {
    let store = Store::start().await;
    let primary = RedisServer::start().unwrap();
    let mut claim = store.claim("a");
    let (mut waiter, signal) = store.waiter("a");
    granted(claim.attempt(Wait::No).await);
    busy(waiter.attempt(Wait::Queue).await);
    store.admin.ask::<()>(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()]).await;
    let error = claim.renew(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    // The client gave that connection up, and the next one finds out at once.
    signal.heard().await;
    let error = waiter.attempt(Wait::Queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert!(error.to_string().contains("is a replica"), "{error}");
    assert_eq!(refused(&store.server.url()).await.kind(), ErrorKind::ReadOnly);
    store.admin.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    // The server may have taken over the other server's data, and that is empty.
    given_up(claim.release()).await;
    lock(&mut waiter, &signal).await;
}

#[tokio::test]
async fn a_server_that_may_evict_is_refused_when_strict() {
    let server = RedisServer::start_with(["--maxmemory-policy", "allkeys-lru"]).unwrap();
    let error = refused(&format!("{}?strict=true", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("allkeys-lru"), "{error}");
    connect(&server.url()).await.unwrap();
    let calm = RedisServer::start().unwrap();
    connect(&format!("{}?strict=true", calm.url())).await.unwrap();
}

#[tokio::test]
async fn c13_a_ttl_below_a_millisecond_is_refused() {
    let store = Store::start().await;
    let spec = spec_for("a", Duration::from_micros(999), Duration::from_micros(100));
    assert_eq!(store.redis.claim(spec).unwrap_err().kind(), ErrorKind::InvalidOption);
}
