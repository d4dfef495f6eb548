//! A server that pauses, resumes, and restarts.

use std::time::{Duration, Instant};

use lockkit_core::Kind;
use tokio::time::sleep;

use crate::support::*;

const SESSION: Duration = Duration::from_secs(16);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_pause_shorter_than_the_lease_is_survived_and_a_longer_one_is_reported_in_time() {
    let bed = Bed::own();
    let query = session(SESSION.as_secs());
    let holding = bed.locker(&query).await;
    let waiting = bed.locker(&query).await;
    let holder = holding.mutex("a").unwrap().lock().await.unwrap();
    let before = holder.fencing_token();
    let next = tokio::spawn({
        let mutex = waiting.mutex("a").unwrap();
        async move { (mutex.lock().await.unwrap(), Instant::now()) }
    });
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    until("the other waits", async || admin.children(&folder).await.len() == 2).await;

    // At least half of the timeout is left at any time. A stall may come before the pause.
    bed.server.pause().unwrap();
    let paused = Instant::now();
    while paused.elapsed() < SESSION / 8 {
        sleep(SESSION / 800).await;
        assert!(holder.is_held(), "lost after {:?}", paused.elapsed());
    }
    bed.server.resume().unwrap();
    until("the session is proven", async || holder.remaining() > SESSION * 9 / 20).await;
    assert!(holder.is_held() && !next.is_finished());

    bed.server.pause().unwrap();
    let paused = Instant::now();
    let left = holder.remaining();
    assert!(left < SESSION, "for {left:?} it would be held beside the next holder");
    let lost = holder.lost();
    until("it is told of the loss", async || lost.is_lost() && !holder.is_held()).await;
    sleep((SESSION * 9 / 8).saturating_sub(paused.elapsed())).await;
    // Once the server resumes, it finds the holder's session expired and may grant at once.
    let is_early = next.is_finished();
    bed.server.resume().unwrap();
    assert!(!is_early, "nobody can get it from a server that is paused");
    let (next, _) = next.await.unwrap();
    assert!(next.fencing_token() > before && !holder.is_held());
    next.release().await.unwrap();
    drop(holder);
    holding.shutdown().await.unwrap();
    waiting.shutdown().await.unwrap();
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_restart_inside_the_session_timeout_is_survived_by_holder_and_waiter() {
    let server = lockkit_fixture::ZooKeeperServer::start_with(options()).unwrap();
    // A busy machine takes many seconds to start a JVM. A server that starts may accept a connection
    // and not answer, so there must be time for another one.
    let url = server.url() + "?session_timeout=5m&connect_timeout=10s";
    let holding = locker(connect_in_the_end(&url).await);
    let waiting = locker(connect_in_the_end(&url).await);
    let holder = holding.mutex("a").unwrap().lock().await.unwrap();
    let next = tokio::spawn({
        let mutex = waiting.mutex("a").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    let inspect = async || {
        let seen = holding.inspect(&mutex("a")).await;
        seen.map(|seen| {
            (seen.holders.iter().filter_map(|holder| holder.token).next(), seen.waiters)
        })
    };
    let as_before =
        async || inspect().await.is_ok_and(|seen| seen == (Some(holder.fencing_token()), Some(1)));
    until("the other waits", as_before).await;
    let mut server = tokio::task::spawn_blocking(move || {
        let mut server = server;
        server.restart().unwrap();
        server
    })
    .await
    .unwrap();
    until("all is as before", as_before).await;
    assert!(holder.is_held() && !next.is_finished());
    let before = holder.fencing_token();
    holder.release().await.unwrap();
    let next = next.await.unwrap();
    assert!(next.fencing_token() > before);
    next.release().await.unwrap();
    holding.shutdown().await.unwrap();
    waiting.shutdown().await.unwrap();
    server.kill().unwrap();
}
