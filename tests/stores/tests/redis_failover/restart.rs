//! A server that is killed and started again, which shows the value of persistence.

use std::time::Duration;

use lockkit::Locker;
use lockkit_fixture::RedisServer;

use crate::support::*;

const TTL: Duration = Duration::from_secs(30);

/// Checks the next attempt after the server was killed and started again under a holder.
async fn restart_under_a_holder(mut server: RedisServer, expect_kept: bool) {
    let first = connect(&server.url()).await;
    let second = connect(&server.url()).await;
    for mode in MODES {
        let held = mode.lock(&first, "a", with_ttl(TTL)).await.unwrap();
        server.restart().unwrap();
        let other = try_through_restart(mode, &second).await;
        assert_eq!(other.is_none(), expect_kept, "{mode:?}");
        assert!(held.is_held(), "{mode:?}: the holder has got no signal");
        match other {
            None => {
                held.renew().await.unwrap();
                held.release().await.unwrap_or_else(|error| panic!("{mode:?}: {error}"));
            }
            Some(other) => {
                assert!(other.fencing_token() > held.fencing_token(), "{mode:?}");
                assert!(is_lost(&held.renew().await.unwrap_err()), "{mode:?}");
                other.release().await.unwrap();
            }
        }
    }
    for locker in [first, second] {
        locker.shutdown().await.unwrap();
    }
    assert_eq!(keys_of_names(&server), [""; 0]);
}

/// The first attempt may find that the old connection is dead.
async fn try_through_restart(mode: Mode, locker: &Locker) -> Option<lockkit::LockGuard> {
    let mut answer = None;
    eventually("the server is back", async || {
        answer = mode.try_lock(locker, "a", with_ttl(TTL)).await.ok();
        answer.is_some()
    })
    .await;
    answer.flatten()
}

#[tokio::test]
async fn c1_a_server_that_writes_all_to_disk_knows_its_locks_after_a_restart() {
    let server =
        RedisServer::start_with(["--appendonly", "yes", "--appendfsync", "always"]).unwrap();
    restart_under_a_holder(server, true).await;
}

#[tokio::test]
async fn c4_a_server_without_persistence_grants_again_after_a_restart_with_larger_tokens() {
    restart_under_a_holder(RedisServer::start().unwrap(), false).await;
}
