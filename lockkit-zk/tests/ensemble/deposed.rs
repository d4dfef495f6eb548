//! A deposed leader. It was cut off from its followers, which have elected another leader, and it
//! still answers its own clients. A client whose connection breaks comes back to this leader, which
//! then resumes the session alone.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use lockkit_conformance::proxy::Proxy;
use lockkit_fixture::{NamespacedEnsemble, ZooKeeperOptions};
use lockkit_zk::Heartbeat;
use tokio::time::sleep;

use crate::{
    support::{SOON, contend, locker, locker_by, mutex, until, within},
    vigil::Vigil,
};

/// The longest timeout that servers with ticks of 500 ms grant.
const SESSION: Duration = Duration::from_secs(9);
/// 20 s with ticks of 500 ms. In this time the leader does not notice that its followers are gone.
const PATIENCE: &str = "syncLimit=40";
/// Counts from the start of the successor. It is close to the bound that `heartbeat=sync` assumes.
/// So a heartbeat after it cannot confirm the session in time.
const RECONNECT: Duration = Duration::from_millis(2_500);

/// The keeper renews less often, which would hide how long a proof is trusted.
const RENEWALS: Duration = Duration::from_millis(20);

/// With `heartbeat=sync` the deposed leader is stopped a third of the session timeout after its
/// successor's start, as that heartbeat assumes. With the default heartbeat it continues to run.
pub(crate) async fn reconnect() -> Result<(), Failed> {
    for heartbeat in [Heartbeat::Sync, Heartbeat::default()] {
        depose(heartbeat).await?;
    }
    Ok(())
}

async fn depose(heartbeat: Heartbeat) -> Result<(), Failed> {
    let mut ensemble =
        NamespacedEnsemble::start(3, ZooKeeperOptions::default().with_config(PATIENCE))?;
    let leader = ensemble.leader()?;
    let followers = ensemble.followers();
    let proxy = Proxy::start(ensemble.node(leader).addr()).await?;
    let holding = locker_by(&[proxy.addr()], SESSION, heartbeat).await?;
    let vigil = Vigil::over(vec![mutex(&holding, "held")?.lock().await?]);
    let start = Instant::now();
    let steady = || vigil.guard(0).remaining() + start.elapsed() > SESSION + SESSION / 4;
    until("heartbeats prove the session", async || steady().then_some(())).await?;

    ensemble.cut(leader)?;
    // Restarted followers elect a leader at once. Other followers would wait for the cut-off leader
    // for as long as it waits for them.
    for &follower in &followers {
        ensemble.node_mut(follower).kill()?;
    }
    for &follower in &followers {
        ensemble.node_mut(follower).restart()?;
    }
    let successor = ensemble.leader_other_than(leader)?;
    let elected = Instant::now();
    let next = locker(&[ensemble.node(successor).addr()], SESSION).await?;
    let waiter = contend(&next, "held")?;

    sleep(RECONNECT.saturating_sub(elected.elapsed())).await;
    proxy.reset_all();
    let reset = elected.elapsed();
    if heartbeat == Heartbeat::Sync {
        sleep((SESSION / 3).saturating_sub(elected.elapsed())).await;
        ensemble.node(leader).pause()?;
    }
    let renewals = async {
        loop {
            // The result does not matter, because the test is about the end of the lease.
            let _ = vigil.guard(0).renew().await;
            sleep(RENEWALS).await;
        }
    };
    let (granted, at) = tokio::select! {
        granted = within(SOON, "the waiter is granted", waiter) => granted??,
        () = renewals => unreachable!(),
    };
    until("the former holder's lease ends", async || vigil.seen(0).lost).await?;
    let held = vigil.seen(0).held;
    println!(
        "{heartbeat:?}: reset {reset:?} after the election; granted after {:?}, the former holder believed until {:?}",
        at - elected,
        held - elected
    );
    assert!(held < at, "C1: two holders for {:?} with {heartbeat:?}", held - at);
    assert!(granted.fencing_token() > vigil.guard(0).fencing_token(), "C4: a token must rise");
    Ok(())
}
