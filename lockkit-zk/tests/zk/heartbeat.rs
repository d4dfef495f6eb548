//! Heartbeats that a quorum agrees on.

use std::time::Duration;

use lockkit_core::{
    Released,
    spi::{Attempt, Wait},
};
use tokio::time::timeout;

use crate::support::*;

const QUERY: &str = "heartbeat=write&session_timeout=2400ms";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_heartbeats_by_write_keep_a_lock_and_their_node_goes_with_the_session() {
    let bed = Bed::shared();
    let locker = bed.locker(QUERY).await;
    let (admin, folder) = (bed.admin().await, format!("/{}/session", bed.prefix));
    let nodes = admin.children(&folder).await;
    let [node] = &nodes[..] else { panic!("{nodes:?}") };
    let node = format!("{folder}/{node}");
    let writes = async || admin.0.check_stat(&node).await.unwrap().map(|stat| stat.version);
    let guard = locker.mutex("a").unwrap().lock().await.unwrap();
    // For longer than the timeout.
    until("heartbeats are written", async || writes().await > Some(14)).await;
    assert!(guard.is_held() && guard.remaining() > Duration::from_millis(1_000));

    // Whoever deletes the node does no harm.
    admin.delete(&node).await;
    until("the node is made anew", async || writes().await > Some(1)).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    locker.shutdown().await.unwrap();
    bed.assert_clean().await;
    assert!(admin.children(&folder).await.is_empty());
}

/// Heartbeats that are refused for want of their folder are not proof, and no outage either: who only asks again waits
/// for ever on a session that nobody proves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_heartbeats_by_write_survive_the_deletion_of_their_folder() {
    let bed = Bed::shared();
    let (zk, admin) = (bed.connect(QUERY).await, bed.admin().await);
    let folder = format!("/{}/session", bed.prefix);
    admin.delete_all(&format!("/{}", bed.prefix)).await;
    until("the folder and the node are made anew", async || !admin.children(&folder).await.is_empty()).await;
    let node = format!("{folder}/{}", admin.children(&folder).await[0]);
    // For longer than the timeout.
    let writes = async || admin.0.check_stat(&node).await.unwrap().map(|stat| stat.version);
    until("heartbeats are written", async || writes().await > Some(14)).await;
    let mut claim = claim(&zk, "a");
    let granted = timeout(OP_TIMEOUT, claim.attempt(Wait::Queue)).await;
    assert!(matches!(granted, Ok(Ok(Attempt::Granted(_)))), "{granted:?}");
    assert_eq!(claim.release().await.unwrap(), Released::Freed);
    drop((claim, zk));
    bed.assert_clean().await;
}
