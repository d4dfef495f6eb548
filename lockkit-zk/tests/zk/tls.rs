//! Connections by TLS.

use futures_util::future::join_all;
use lockkit_core::{Error, ErrorKind};
use lockkit_fixture::ZooKeeperServer;

use crate::support::*;

async fn refused(url: String) -> Error {
    let error = connect(&url).await.unwrap_err();
    assert!(!texts(&error).contains("hunter2"), "{}", texts(&error));
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_zks_needs_a_certificate_that_it_trusts() {
    let server = ZooKeeperServer::start_with(options().with_tls()).unwrap();
    let other = ZooKeeperServer::start_with(options().with_tls()).unwrap();
    let plain = server.addr().port();
    let secure = server.tls_addr().port();
    let right = server.tls_certificate();
    let wrong = other.tls_certificate();
    let right = right.to_str().unwrap();
    let wrong = wrong.to_str().unwrap();
    let url = |host: &str, port: u16, query: &str| {
        format!("zks://ann:hunter2@{host}:{port}/?session_timeout=4s&{query}")
    };
    for host in ["localhost", "127.0.0.1"] {
        let lasting = session(60);
        let url = format!("zks://ann:hunter2@{host}:{secure}/?{lasting}&ca={right}");
        let locker = locker(connect_in_the_end(&url).await);
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        guard.release().await.unwrap();
        locker.shutdown().await.unwrap();
    }

    // All at the same time, because each is tried for some time.
    let (ca, wrong_ca) = (format!("ca={right}"), format!("ca={wrong}"));
    let unavailable = join_all([
        refused(url("localhost", secure, &wrong_ca)),
        // TLS at the plain port.
        refused(url("localhost", plain, &ca)),
        // No host has this name.
        refused(url("no_such-host.invalid", secure, &ca)),
    ]);
    let plain_text = format!("zk://ann:hunter2@localhost:{secure}/?session_timeout=1s");
    let (unavailable, at_tls_port) = tokio::join!(unavailable, refused(plain_text));
    for error in unavailable.iter().chain([&at_tls_port]) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(
        unavailable[0].to_string().contains("not signed by the parameter ca"),
        "{}",
        unavailable[0]
    );

    for (host, query, word) in [
        ("localhost", "", "parameter ca"),
        ("localhost", "ca=/nowhere/ca.pem", "/nowhere/ca.pem"),
        // No certificate could have this name, though the system takes it for an address.
        ("127.1", &*ca, "127.1"),
    ] {
        let error = refused(url(host, secure, query).trim_end_matches('&').to_owned()).await;
        assert!(
            matches!(error.kind(), ErrorKind::InvalidOption | ErrorKind::InvalidUrl),
            "{error}"
        );
        assert!(error.to_string().contains(word), "{error}");
    }
}
