//! Servers that can't be reached, and lists of which some can.

use std::{
    net::{SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use lockkit_core::{Error, ErrorKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::*;

/// Takes connections and never answers.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

fn closed() -> SocketAddr {
    silent().1
}

async fn refused(hosts: &str) -> (Error, Duration) {
    let started = Instant::now();
    let error = connect(&format!("zk://ann:hunter2@{hosts}/?session_timeout=3s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.backend(), Some("zookeeper"));
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
    assert!(!texts(&error).contains("hunter2"), "{}", texts(&error));
    (error, started.elapsed())
}

#[tokio::test]
async fn c13_each_server_that_gives_no_session_is_named_with_its_reason() {
    let (closed, (_listener, silent)) = (closed(), silent());
    let (error, _) = refused(&closed.to_string()).await;
    assert!(error.to_string().contains(&format!("{closed}: Connection refused")), "{error}");

    let (error, took) = refused(&format!("{closed},{silent}")).await;
    assert!(error.to_string().contains(&format!("{closed}: Connection refused")), "{error}");
    assert!(error.to_string().contains(&format!("{silent}: takes connections")), "{error}");
    assert!(took < Duration::from_secs(7), "{took:?}");

    let (error, _) = refused("no-such-host.invalid:2181").await;
    assert!(error.to_string().contains("no-such-host.invalid:2181: "), "{error}");
    assert!(error.to_string().contains("lookup"), "{error}");

    // In brackets, or nobody can tell the address from its port.
    let (error, _) = refused(&format!("[::1]:{}", closed.port())).await;
    assert!(error.to_string().contains(&format!(" [::1]:{}: ", closed.port())), "{error}");
}

#[tokio::test]
async fn c13_what_is_no_zookeeper_gives_no_session() {
    let echo = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = echo.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut socket, _)) = echo.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = socket.read(&mut buffer).await {
                    if socket.write_all(&buffer[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    let (error, took) = refused(&addr.to_string()).await;
    assert!(error.to_string().contains("not be ZooKeeper's"), "{error}");
    assert!(took < Duration::from_secs(7), "{took:?}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_a_black_hole_in_the_list_costs_no_more_than_its_connect_timeout() {
    let bed = Bed::shared();
    let (closed, (_listener, silent), server) = (closed(), silent(), bed.server.addr());
    for hosts in [
        format!("{silent},{server}"),
        format!("{server},{silent}"),
        format!("{closed},{silent},{server}"),
        format!("{closed},{server},{closed}"),
    ] {
        let url = format!("zk://{hosts}/?prefix={}&session_timeout=6s", bed.prefix);
        let started = Instant::now();
        let locker = locker(connect(&url).await.unwrap());
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        // 2/9 of 6 s between all servers; the list is walked at most twice.
        assert!(started.elapsed() < Duration::from_secs(4), "{hosts}: {:?}", started.elapsed());
        guard.release().await.unwrap();
        locker.shutdown().await.unwrap();
    }
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_reconnect_past_a_black_hole_keeps_the_lock() {
    let bed = Bed::shared();
    let (_listener, silent) = silent();
    let proxy = lockkit_conformance::proxy::Proxy::start(bed.server.addr()).await.unwrap();
    let url = format!("zk://{silent},{}/?prefix={}&session_timeout=6s", proxy.addr(), bed.prefix);
    let locker = locker(connect(&url).await.unwrap());
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    for _ in 0..3 {
        proxy.reset_all();
        until("the session is proven", async || {
            assert!(guard.is_held());
            guard.renew().await.is_ok() && guard.remaining() > Duration::from_millis(3_000)
        })
        .await;
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
    bed.assert_clean().await;
}
