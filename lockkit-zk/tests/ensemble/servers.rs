//! Servers that are dead, and addresses that accept connections and never answer.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_core::Locker;
use lockkit_fixture::{ZooKeeperEnsemble, ZooKeeperOptions};

use crate::{
    support::{Admin, SOON, contend, locker, mutex, server_of, slack, within},
    vigil::Vigil,
};

const SESSION: Duration = Duration::from_secs(8);
const LOCKERS: usize = 6;

pub(crate) async fn dead_and_silent() -> Result<(), Failed> {
    let mut ensemble = ZooKeeperEnsemble::start(3, ZooKeeperOptions::default())?;
    // The system accepts the connections, and no process ever reads them.
    let hole = TcpListener::bind("127.0.0.1:0")?;
    let dead = ensemble.followers()[0];
    let alive: Vec<_> = (0..3).filter(|&node| node != dead).collect();
    let mut servers = vec![hole.local_addr()?, ensemble.node(dead).addr()];
    servers.extend(alive.iter().map(|&node| ensemble.node(node).addr()));
    ensemble.node_mut(dead).kill()?;

    let admin = Admin::on(ensemble.node(alive[0]).addr()).await?;
    let mut lockers = Vec::new();
    let mut guards = Vec::new();
    let mut nodes = Vec::new();
    let mut times = Vec::new();
    for index in 0..LOCKERS {
        let name = format!("held {index}");
        let start = Instant::now();
        let locker = locker(&servers, SESSION).await?;
        guards.push(mutex(&locker, &name)?.lock().await?);
        times.push(start.elapsed());
        nodes.push(admin.node(&name).await?);
        lockers.push(locker);
    }
    println!("connected and locked in {times:?}");
    // At worst the silent and the dead server are asked first: one ninth of two sessions, and
    // pauses.
    assert!(times.iter().all(|&time| time < SESSION / 4 + slack()), "C8: it took {times:?}");

    ensemble.node_mut(dead).restart()?;
    ensemble.wait_until_whole()?;
    let lost = server_of(&ensemble, nodes[0].session).ok_or("the first locker is nowhere")?;
    let concerned: Vec<_> = (0..LOCKERS)
        .filter(|&index| server_of(&ensemble, nodes[index].session) == Some(lost))
        .collect();
    let vigil = Vigil::over(guards);
    drop(admin);
    let killed = Instant::now();
    ensemble.node_mut(lost).kill()?;
    let gaps = new_grants(&lockers, killed).await?;
    println!(
        "{concerned:?} of {LOCKERS} lost server {lost}; all were granted another lock after {gaps:?}"
    );
    let admin = Admin::on(ensemble.node(dead).addr()).await?;
    for (index, node) in nodes.iter().enumerate() {
        assert_eq!(vigil.seen(index).lost, None, "C3: a lock was lost with one of three servers");
        assert!(admin.has(node).await?, "{} is not the node it was", node.path);
        let server = server_of(&ensemble, node.session);
        assert!(server.is_some_and(|server| server != lost), "the session is on {server:?}");
    }
    for guard in vigil.end() {
        guard.release().await?;
    }
    for locker in lockers {
        locker.shutdown().await?;
    }
    Ok(())
}

/// Takes a new lock with each locker. Returns how long after the kill each was granted.
async fn new_grants(lockers: &[Locker], killed: Instant) -> Result<Vec<Duration>, Failed> {
    let mut gaps = Vec::new();
    for (index, locker) in lockers.iter().enumerate() {
        let (guard, at) =
            within(SOON, "a lock on another server", contend(locker, &format!("new {index}"))?)
                .await??;
        gaps.push(at - killed);
        guard.release().await?;
    }
    Ok(gaps)
}
