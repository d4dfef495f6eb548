//! Nodes that another client deletes.

use lockkit_core::{
    ErrorKind, FencingToken, Kind,
    spi::{Backend as _, LossReason, Released, RenewalOutcome, Wait},
};
use lockkit_fixture::claims::given_up;
use lockkit_zk::zookeeper_client::{Acls, CreateMode};
use tokio::time::timeout;

use crate::support::*;

/// The session timeout of clients that learn of a change from a heartbeat.
const HEARTBEATS_S: u64 = 24;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c3_a_holder_learns_within_a_heartbeat_that_its_node_was_deleted() {
    let bed = Bed::shared();
    let with_heartbeats = session(HEARTBEATS_S);
    for query in [with_heartbeats.clone(), format!("{with_heartbeats}&fair=false")] {
        let bed = Bed { prefix: format!("{}-{}", bed.prefix, query.len()), ..bed.clone() };
        let locker = bed.locker(&query).await;
        let guard = locker.mutex("a").unwrap().lock().await.unwrap();
        let admin = bed.admin().await;
        let folder = bed.folder(Kind::Mutex, "a");
        let node = admin.children(&folder).await.pop().unwrap();
        admin.delete(&format!("{folder}/{node}")).await;
        // No renewal asks the server. Only the check of a heartbeat finds it.
        let reason = timeout(SOON, guard.lost().wait()).await.unwrap();
        assert_eq!(reason, LossReason::Evicted);
        assert!(!guard.is_held());
        assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Lost);
        locker
            .mutex("a")
            .unwrap()
            .try_lock()
            .await
            .unwrap()
            .expect("it is free")
            .release()
            .await
            .unwrap();
        locker.shutdown().await.unwrap();
        bed.assert_clean().await;
    }
}

#[tokio::test]
async fn c12_a_waiter_whose_node_is_deleted_queues_up_anew() {
    let bed = Bed::shared();
    let zk = bed.connect(&session(HEARTBEATS_S)).await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    let (mut waiter, signal) = waiter(&zk, "a");
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    let old = admin.children(&folder).await;
    admin.delete(&format!("{folder}/{}", old[1])).await;
    signal.heard().await;
    assert!(
        busy(waiter.attempt(Wait::Queue).await).0,
        "it is not the first of those who are there"
    );
    let new = admin.children(&folder).await;
    assert_eq!((new.len(), &new[0]), (2, &old[0]));
    assert_ne!(new[1], old[1]);
    given_up(holder.release()).await;
    assert_eq!(
        lock(&mut waiter).await.token.get(),
        admin.created(&format!("{folder}/{}", new[1])).await
    );
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

/// The watch says that the holder is gone. No heartbeat has seen yet that the waiter's own node is
/// gone as well.
#[tokio::test]
async fn c8_a_waiter_whose_node_was_deleted_with_the_holders_gets_a_new_node() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut holder = claim(&zk, "a");
    let mut waiter = claim(&zk, "a");
    let before = granted(holder.attempt(Wait::Queue).await).token;
    assert!(busy(waiter.attempt(Wait::Queue).await).0);
    let nodes = admin.children(&folder).await;
    for node in nodes.iter().rev() {
        admin.delete(&format!("{folder}/{node}")).await;
    }
    woken(&mut waiter).await;
    let grant = granted(waiter.attempt(Wait::Queue).await);
    let now = admin.children(&folder).await;
    assert_eq!(now.len(), 1);
    assert!(!nodes.contains(&now[0]), "a grant without a node");
    assert_eq!(grant.token.get(), admin.created(&format!("{folder}/{}", now[0])).await);
    assert!(grant.token > before);
    assert_eq!(holder.renew(None).await.unwrap(), RenewalOutcome::Lost(LossReason::Evicted));
    assert_eq!(holder.release().await.unwrap(), Released::NotHeld);
    assert_eq!(waiter.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c14_force_release_leaves_a_foreign_clients_node_alone_even_by_its_zxid() {
    let bed = Bed::shared();
    let zk = bed.connect("").await;
    let admin = bed.admin().await;
    let folder = bed.folder(Kind::Mutex, "a");
    let mut ours = claim(&zk, "a");
    granted(ours.attempt(Wait::Queue).await);
    let foreign = format!("{folder}/_c_00112233-4455-6677-8899-aabbccddeeff-lock-");
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (stat, sequence) = admin.0.create(&foreign, b"192.168.1.7", &options).await.unwrap();
    assert_eq!(ours.release().await.unwrap(), Released::Freed);
    let token = FencingToken::new(stat.czxid.cast_unsigned());
    assert_eq!(zk.inspect(&mutex("a")).await.unwrap().holders.len(), 1);
    assert_eq!(zk.force_release(&mutex("a"), token).await.unwrap(), Released::NotHeld);
    assert!(admin.exists(&format!("{foreign}{sequence}")).await);
}
