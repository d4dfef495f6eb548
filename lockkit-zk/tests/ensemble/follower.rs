//! A follower that is cut off from its leader, and continues to serve pings and reads of its
//! clients.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use lockkit_core::{ErrorKind, Locker};
use lockkit_fixture::{NamespacedEnsemble, ZooKeeperOptions};

use crate::{
    support::{Admin, Node, SOON, all, contend, locker, mutex, server_of, until, within},
    vigil::Vigil,
};

const SESSION: Duration = Duration::from_secs(6);
/// A client chooses its first server at random.
const MOST_CONNECTS: usize = 30;

pub(crate) async fn cut() -> Result<(), Failed> {
    let mut ensemble = NamespacedEnsemble::start(3, ZooKeeperOptions::default())?;
    let leader = ensemble.leader()?;
    let follower = ensemble.followers()[0];
    let admin = Admin::on(ensemble.node(leader).addr()).await?;

    let bound = locker(&[ensemble.node(follower).addr()], SESSION).await?;
    let guards = vec![mutex(&bound, "bound")?.lock().await?];
    let (free, free_guard) = on(&ensemble, &admin, follower).await?;
    let next = locker(&[ensemble.node(leader).addr()], SESSION).await?;
    let mut vigil = Vigil::over(guards.into_iter().chain([free_guard]).collect());
    let nodes = [admin.node("bound").await?, admin.node("free").await?];
    let freed = admin.freed(&nodes[0]).await?;
    let waiter = contend(&next, "bound")?;
    steady(&vigil).await?;

    let cut = Instant::now();
    ensemble.cut(follower)?;
    let freed = within(SOON, "the leader frees the node of the holder on the cut follower", freed)
        .await??;
    let told = vigil.told(0).await;
    let seen = vigil.seen(0);
    println!(
        "cut at 0; held until {:?}, told at {:?}, freed at {:?}",
        seen.held - cut,
        told - cut,
        freed - cut
    );
    assert!(seen.held < freed, "C3: is_held() was true when the leader had freed the node");
    assert!(told < freed, "C3: the signal came after the leader had freed the node");
    assert!(told - cut < SESSION, "C3: a lease outlives its proof");
    let (granted, at) = within(SOON, "the waiter is granted", waiter).await??;
    assert!(seen.held < at, "C1: two holders");
    assert!(granted.fencing_token() > vigil.guard(0).fencing_token(), "C4: a token must rise");

    // The other holder knows all servers, and moved to another one in time.
    let moved = server_of(&ensemble, nodes[1].session);
    println!("the holder that knows all servers went from {follower} to {moved:?}");
    assert!(moved.is_some_and(|server| server != follower), "it stayed: {moved:?}");
    assert_eq!(vigil.seen(1).lost, None, "C3: a lock was lost though another server was in reach");
    assert!(admin.has(&nodes[1]).await?);

    ensemble.heal()?;
    ensemble.wait_until_whole()?;
    let mut guards = vigil.end();
    guards.pop().expect("two").release().await?;
    assert_eq!(guards.pop().expect("two").release().await.unwrap_err().kind(), ErrorKind::Lost);
    granted.release().await?;
    for locker in [bound, free, next] {
        locker.shutdown().await?;
    }
    Ok(())
}

/// A locker that knows all servers and is connected to this one, with its lock.
async fn on(
    ensemble: &NamespacedEnsemble,
    admin: &Admin,
    server: usize,
) -> Result<(Locker, lockkit_core::LockGuard), Failed> {
    for _ in 0..MOST_CONNECTS {
        let locker = locker(&all(ensemble), SESSION).await?;
        let guard = mutex(&locker, "free")?.lock().await?;
        let Node { session, .. } = admin.node("free").await?;
        if server_of(ensemble, session) == Some(server) {
            return Ok((locker, guard));
        }
        guard.release().await?;
        locker.shutdown().await?;
    }
    Err(format!("none of {MOST_CONNECTS} clients chose the server {server}").into())
}

/// Waits until only heartbeats prove the sessions. The connects proved them for one timeout.
async fn steady(vigil: &Vigil) -> Result<(), Failed> {
    let start = Instant::now();
    let steady =
        |index: usize| vigil.guard(index).remaining() + start.elapsed() > SESSION + SESSION / 4;
    until("heartbeats prove the sessions", async || (steady(0) && steady(1)).then_some(())).await
}
