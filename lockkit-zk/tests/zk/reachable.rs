//! Servers that cannot be reached, and lists with some that can.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use lockkit_core::{Error, ErrorKind};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::support::*;

/// Accepts connections and never answers.
fn silent() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

/// No test listens at this port.
const CLOSED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// The session would last for longer than this test waits.
async fn unreachable(hosts: &str) -> Error {
    let url = format!("zk://ann:hunter2@{hosts}/?session_timeout=10m");
    // On a busy machine, the reason may come too late.
    let explained = async {
        loop {
            let error = connect(&url).await.unwrap_err();
            if !error.to_string().contains(": no answer") {
                return error;
            }
        }
    };
    let error = timeout(SOON, explained).await.expect("it hangs, or says no reason");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.backend(), Some("zookeeper"));
    assert!(error.is_temporary() && !error.is_outcome_unknown(), "{error}");
    assert!(!texts(&error).contains("hunter2"), "{}", texts(&error));
    error
}

#[tokio::test]
async fn c13_each_server_that_gives_no_session_is_named_with_its_reason() {
    let (_listener, silent) = silent();
    let error = unreachable(&CLOSED.to_string()).await;
    assert!(error.to_string().contains(&format!("{CLOSED}: Connection refused")), "{error}");

    let error = unreachable(&format!("{CLOSED},{silent}")).await;
    assert!(error.to_string().contains(&format!("{CLOSED}: Connection refused")), "{error}");
    assert!(error.to_string().contains(&format!("{silent}: accepts connections")), "{error}");

    let error = unreachable("no-such-host.invalid:2181").await;
    assert!(error.to_string().contains("no-such-host.invalid:2181: "), "{error}");
    assert!(error.to_string().contains("lookup"), "{error}");

    // In brackets, because otherwise the address and its port cannot be separated.
    let error = unreachable("[::1]:1").await;
    assert!(error.to_string().contains(" [::1]:1: "), "{error}");
}

#[tokio::test]
async fn c13_a_server_that_is_no_zookeeper_gives_no_session() {
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
    let error = unreachable(&addr.to_string()).await;
    assert!(error.to_string().contains("not ZooKeeper's"), "{error}");
    serving.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_a_black_hole_in_the_list_costs_no_more_than_its_connect_timeout() {
    let bed = Bed::shared();
    let (_listener, silent) = silent();
    let server = bed.server.addr();
    for hosts in [
        format!("{silent},{server}"),
        format!("{server},{silent}"),
        format!("{CLOSED},{silent},{server}"),
        format!("{CLOSED},{server},{CLOSED}"),
    ] {
        // A client that gives each server its share of the session timeout would wait for minutes.
        let url = format!("zk://{hosts}/?prefix={}&session_timeout=10m", bed.prefix);
        let connecting = timeout(SOON, connect_in_the_end(&url)).await;
        let locker = locker(connecting.unwrap_or_else(|_| panic!("{hosts}: it hangs")));
        let guard =
            timeout(SOON, locker.mutex("a").unwrap().lock()).await.expect("it hangs").unwrap();
        guard.release().await.unwrap();
        locker.shutdown().await.unwrap();
    }
    bed.assert_clean().await;
}

/// Catches a client that stays with the first server until it gives up: its next attempt may begin
/// with another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_one_try_moves_from_a_black_hole_to_the_next_server() {
    let bed = Bed::shared();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counting = tokio::spawn({
        let asked = Arc::clone(&asked);
        async move {
            let mut held = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                held.push(stream);
                asked.fetch_add(1, Relaxed);
            }
        }
    });
    let url =
        format!("zk://{silent},{}/?prefix={}&session_timeout=10m", bed.server.addr(), bed.prefix);
    // An attempt that reaches the other server first proves nothing. An attempt that finds it
    // stalled proves nothing either.
    until("a try gets past the black hole", async || {
        let before = asked.load(Relaxed);
        match connect(&url).await {
            Ok(zk) => {
                locker(zk).shutdown().await.unwrap();
                asked.load(Relaxed) > before
            }
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                false
            }
        }
    })
    .await;
    counting.abort();
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_reconnect_past_a_black_hole_keeps_the_lock() {
    let bed = Bed::steady();
    let (_listener, silent) = silent();
    let proxy = lockkit_conformance::proxy::Proxy::start(bed.server.addr()).await.unwrap();
    // This leaves 3.3 s for each server: nearly the pause between two heartbeats, and far less than
    // the lease.
    const SESSION: Duration = Duration::from_secs(30);
    let session = format!("session_timeout={}s", SESSION.as_secs());
    let url = format!("zk://{silent},{}/?prefix={}&{session}", proxy.addr(), bed.prefix);
    let locker = locker(connect_in_the_end(&url).await);
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    for _ in 0..3 {
        proxy.reset_all();
        until("there is a connection", async || {
            assert!(guard.is_held());
            guard.renew().await.is_ok()
        })
        .await;
    }
    until("the session is proven", async || guard.remaining() > SESSION / 3).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    locker.shutdown().await.unwrap();
    bed.assert_clean().await;
}
