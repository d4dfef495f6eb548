//! More waiters than one session can watch.

use std::sync::Arc;

use lockkit_core::spi::{Attempt, Released, Wait};
use tokio::task::JoinSet;

use crate::support::*;

/// Each emoji of four bytes becomes twelve in a path.
fn long_name() -> String {
    "🔒".repeat(63) + "abc"
}

/// Some 850 bytes each, which a reconnecting client would name to the server: 128 KiB and it refuses them all.
const WAITERS: usize = 240;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_waiters_that_one_session_can_not_watch_get_another_and_all_survive_a_reconnect() {
    let bed = Bed::own(options());
    let (zk, proxy) = bed.behind_proxy("session_timeout=20s").await;
    let (zk, name) = (Arc::new(zk), long_name());
    assert_eq!(name.len(), 255);
    let connections = || bed.server.metric("zk_num_alive_connections").unwrap() - 1;
    assert_eq!(connections(), 1);
    let mut holder = claim(&zk, &name);
    granted(holder.attempt(Wait::Queue).await);
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        let mut waiter = claim(&zk, &name);
        assert!(busy(waiter.attempt(Wait::Queue).await));
        waiters.push(waiter);
    }
    let sessions = connections();
    assert!(sessions >= 2, "{sessions}");
    for _ in 0..2 {
        proxy.reset_all();
        until("all are connected", async || connections() == sessions).await;
    }
    let mut tasks = JoinSet::new();
    for mut waiter in waiters {
        tasks.spawn(async move {
            // The reconnect itself may have cost an answer; a wake-up, never.
            loop {
                match waiter.attempt(Wait::Queue).await {
                    Ok(Attempt::Granted(grant)) => {
                        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
                        return grant.token;
                    }
                    Ok(Attempt::Busy { .. }) => woken(&mut waiter).await,
                    Err(error) => assert!(error.is_temporary(), "{error}"),
                }
            }
        });
    }
    assert_eq!(persistently(async || holder.release().await).await, Released::Freed);
    let mut tokens = 0;
    while let Some(token) = tasks.join_next().await {
        token.unwrap();
        tokens += 1;
    }
    assert_eq!(tokens, WAITERS);
    drop(holder);
    // Whoever comes next finds the crowd gone.
    let mut next = claim(&zk, &name);
    granted(next.attempt(Wait::No).await);
    next.release().await.unwrap();
    until("the extra sessions end", async || connections() == 1).await;
    bed.assert_clean().await;
}

#[tokio::test]
async fn who_gives_up_and_who_holds_takes_no_room_from_the_waiters() {
    let bed = Bed::own(options());
    let zk = bed.connect("session_timeout=20s").await;
    let name = long_name();
    let mut holder = claim(&zk, &name);
    granted(holder.attempt(Wait::Queue).await);
    for _ in 0..WAITERS {
        assert!(busy(claim(&zk, &name).attempt(Wait::Queue).await));
    }
    let mut held = Vec::new();
    for number in 0..WAITERS {
        let mut other = claim(&zk, &format!("{}{number:03}", "🔒".repeat(63)));
        granted(other.attempt(Wait::Queue).await);
        held.push(other);
    }
    assert_eq!(bed.server.metric("zk_num_alive_connections").unwrap() - 1, 1);
}
