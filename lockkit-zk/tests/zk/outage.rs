//! A server that stops, goes on, and starts again.

use std::time::{Duration, Instant};

use lockkit_core::{Kind, Released};
use tokio::time::sleep;

use crate::support::*;

const SESSION: Duration = Duration::from_secs(8);
const QUERY: &str = "session_timeout=8s";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_pause_shorter_than_the_lease_is_survived_and_a_longer_one_is_told_in_time() {
    let bed = Bed::own(options());
    let (holding, waiting) = (bed.locker(QUERY).await, bed.locker(QUERY).await);
    let holder = holding.mutex("a").unwrap().lock().await.unwrap();
    let before = holder.fencing_token();
    let next = tokio::spawn({
        let mutex = waiting.mutex("a").unwrap();
        async move { (mutex.lock().await.unwrap(), Instant::now()) }
    });
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    until("the other waits", async || admin.children(&folder).await.len() == 2).await;

    // At least half of the timeout is left at any time, and a proof takes another 0.4 of it: the rest is for a busy machine.
    for pause in [1_000, 2_000] {
        bed.server.pause().unwrap();
        let paused = Instant::now();
        while paused.elapsed() < Duration::from_millis(pause) {
            sleep(Duration::from_millis(20)).await;
            assert!(holder.is_held(), "lost after {:?} of {pause} ms", paused.elapsed());
        }
        bed.server.resume().unwrap();
        until("the session is proven", async || holder.remaining() > SESSION * 9 / 20).await;
        assert!(holder.is_held() && !next.is_finished());
    }

    bed.server.pause().unwrap();
    let paused = Instant::now();
    let lost = holder.lost();
    let (mut told, mut seen) = (None, None);
    while paused.elapsed() < Duration::from_secs(9) {
        sleep(Duration::from_millis(10)).await;
        seen = seen.or_else(|| (!holder.is_held()).then(|| paused.elapsed()));
        told = told.or_else(|| lost.is_lost().then(|| paused.elapsed()));
    }
    // Once it goes on, it finds the holder's session expired and may grant at once.
    let is_early = next.is_finished();
    bed.server.resume().unwrap();
    assert!(!is_early, "nobody can get it from a server that is paused");
    let (told, seen) = (told.unwrap(), seen.unwrap());
    assert!(told < SESSION && seen < SESSION, "{told:?} {seen:?}");
    let (next, _) = next.await.unwrap();
    assert!(next.fencing_token() > before && !holder.is_held());
    assert!(matches!(next.release().await, Ok(Released::Freed)));
    drop(holder);
    holding.shutdown().await.unwrap();
    waiting.shutdown().await.unwrap();
    bed.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_restart_inside_the_session_timeout_is_survived_by_holder_and_waiter() {
    let server = lockkit_fixture::ZooKeeperServer::start_with(options()).unwrap();
    let url = server.url() + "?session_timeout=20s";
    let (holding, waiting) = (locker(connect(&url).await.unwrap()), locker(connect(&url).await.unwrap()));
    let holder = holding.mutex("a").unwrap().lock().await.unwrap();
    let next = tokio::spawn({
        let mutex = waiting.mutex("a").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    let inspect = async || {
        let seen = holding.inspect(&mutex("a")).await;
        seen.map(|seen| (seen.holders.iter().filter_map(|holder| holder.token).next(), seen.waiters))
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
    until("the session is proven", async || holder.remaining() > Duration::from_secs(9)).await;
    assert!(holder.is_held() && !next.is_finished());
    let before = holder.fencing_token();
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    let next = next.await.unwrap();
    assert!(next.fencing_token() > before);
    assert_eq!(next.release().await.unwrap(), Released::Freed);
    holding.shutdown().await.unwrap();
    waiting.shutdown().await.unwrap();
    server.kill().unwrap();
}
