//! Connections by TLS.

use lockkit_core::{ErrorKind, Released};
use lockkit_fixture::ZooKeeperServer;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zks_needs_the_right_certificate() {
    let server = ZooKeeperServer::start_with(options().with_tls()).unwrap();
    let port = server.tls_addr().port();
    let ca = server.tls_certificate();
    let url = |host: &str, ca: &str| format!("zks://ann:hunter2@{host}:{port}/?session_timeout=3s&ca={ca}");
    for host in ["localhost", "127.0.0.1"] {
        let locker = locker(connect(&url(host, ca.to_str().unwrap())).await.unwrap());
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
        locker.shutdown().await.unwrap();
    }

    let other = ZooKeeperServer::start_with(options().with_tls()).unwrap();
    let wrong = other.tls_certificate();
    let error = connect(&url("localhost", wrong.to_str().unwrap())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
    assert!(!texts(&error).contains("hunter2"));

    // Plain text at the TLS port, and TLS at the plain one.
    let plain = url("localhost", "").replace("zks:", "zk:").replace("&ca=", "");
    let error = connect(&plain).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let crossed = url("localhost", ca.to_str().unwrap());
    let error =
        connect(&crossed.replace(&port.to_string(), &server.addr().port().to_string())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");

    // Nothing to trust, and a name that no certificate has.
    let error = connect(&url("localhost", "").replace("&ca=", "")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("ca"), "{error}");
    for host in ["[::1]", "localhost.", "no_such-host.invalid"] {
        let error = connect(&url(host, ca.to_str().unwrap())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }

    let error = connect(&url("localhost", "/nowhere/ca.pem")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOption, "{error}");
    assert!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
}
