//! Clients stall, get one answer, and then their follower is frozen.
//!
//! The leader hears nothing of their sessions during the stall. The heartbeat after it is answered
//! through the leader, which does not touch their timers. The follower has heard of the clients
//! again. The leader would learn that from the answer to its next ping, but the follower is frozen
//! before it answers. So the leader frees the nodes a session timeout after the *stall* began. A
//! lease that counts from the last answered heartbeat is wrong, even if it is only two thirds of
//! the timeout long.
//!
//! The stall is in the network, and the clients' pings are answered. A client that noticed the
//! stall would connect again, which starts the leader's timer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use libtest_mimic::Failed;
use lockkit_core::{LockGuard, Locker};
use lockkit_fixture::{ZooKeeperEnsemble, ZooKeeperOptions};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    support::{Admin, SOON, locker, mutex, until, within},
    tap::Tap,
    vigil::Vigil,
};

const HOLDERS: usize = 20;
const SESSION: Duration = Duration::from_secs(6);
/// A lease of two thirds of the timeout from the end of the stall outlives the node. A lease of two
/// thirds from its beginning outlives the stall.
const STALL: Duration = Duration::from_millis(3_200);
/// The driver renews less often, which would hide how long a proof is trusted.
const RENEWALS: Duration = Duration::from_millis(20);
/// A ping of the leader, every 250 ms, may come between the answers and the freeze. The round then
/// proves nothing. This may happen often on a busy machine.
const MOST_ROUNDS: usize = 20;

pub(crate) async fn stalled() -> Result<(), Failed> {
    let ensemble = ZooKeeperEnsemble::start(3, ZooKeeperOptions::default())?;
    let mut sprung = 0;
    for _ in 0..MOST_ROUNDS {
        sprung += round(&ensemble).await?;
        ensemble.wait_until_whole()?;
        if sprung >= HOLDERS {
            return Ok(());
        }
    }
    Err(format!(
        "the trap sprung for {sprung} holders in {MOST_ROUNDS} rounds, which proves too little"
    )
    .into())
}

/// Returns how many holders' nodes the leader freed within two thirds of the timeout after the
/// answered heartbeat.
async fn round(ensemble: &ZooKeeperEnsemble) -> Result<usize, Failed> {
    let leader = ensemble.leader()?;
    let follower = ensemble.followers()[0];
    let admin = Admin::on(ensemble.node(leader).addr()).await?;
    let Holders { lockers, taps, guards, freed } = holders(ensemble, follower, &admin).await?;
    let renewals: Vec<_> = guards.iter().map(|guard| renew(Arc::clone(guard))).collect();
    let start = Instant::now();
    let vigil = Vigil::over(guards);
    let steady =
        |index: usize| vigil.guard(index).remaining() + start.elapsed() > SESSION + SESSION / 4;
    until("heartbeats prove the sessions", async || (0..HOLDERS).all(steady).then_some(())).await?;

    taps.iter().for_each(Tap::mute);
    sleep(STALL).await;
    let stalled = Instant::now();
    for tap in &taps {
        tap.unmute()?;
    }
    until_answered(&taps, stalled).await?;
    // A guard uses the proof of the heartbeats only once it has asked for it.
    join_all((0..HOLDERS).map(|index| vigil.guard(index).renew())).await;
    ensemble.node(follower).pause()?;
    let frozen = Instant::now();
    let beats: Vec<_> = taps.iter().filter_map(Tap::newest).map(|sync| sync.sent).collect();
    // If a client noticed the stall, its holder proves nothing either.
    let unaware: Vec<_> = taps.iter().map(|tap| tap.connections() == 1).collect();

    let mut sprung = 0;
    let mut least = SESSION;
    let mut earliest = SESSION;
    for (index, (freed, beat)) in freed.into_iter().zip(beats).enumerate() {
        let freed = within(SOON, "the leader frees the node", freed).await??;
        let seen = vigil.seen(index);
        let lost = seen.lost.ok_or("C3: is_held() is true though the leader has freed the node")?;
        assert!(
            seen.held < freed,
            "C3: held {:?} after the leader freed the node",
            seen.held - freed
        );
        assert!(lost < freed, "C3: the loss was seen {:?} late", lost - freed);
        (least, earliest) = (least.min(freed - lost), earliest.min(freed - beat));
        // A holder that was lost before the freeze may have deleted its node itself.
        sprung += usize::from(unaware[index] && lost > frozen && freed - beat < SESSION * 2 / 3);
    }
    println!(
        "frozen {:?} after the stall; {sprung} of {HOLDERS} nodes freed within 2/3 of the timeout from an answered \
         heartbeat, the first after {earliest:?}; each lost at least {least:?} before",
        frozen - stalled
    );
    ensemble.node(follower).resume()?;
    renewals.iter().for_each(JoinHandle::abort);
    drop(vigil);
    for locker in lockers {
        locker.shutdown().await?;
    }
    Ok(sprung)
}

/// The clients of a follower. Each holds a lock, and its line can be stalled.
struct Holders {
    lockers: Vec<Locker>,
    taps: Vec<Tap>,
    guards: Vec<Arc<LockGuard>>,
    /// When the leader frees the node of each.
    freed: Vec<JoinHandle<Instant>>,
}

async fn holders(
    ensemble: &ZooKeeperEnsemble,
    follower: usize,
    admin: &Admin,
) -> Result<Holders, Failed> {
    let mut lockers = Vec::new();
    let mut taps = Vec::new();
    let mut guards = Vec::new();
    let mut freed = Vec::new();
    for index in 0..HOLDERS {
        let tap = Tap::on(ensemble.node(follower).addr())?;
        let locker = locker(&[tap.addr()], SESSION).await?;
        let name = format!("held {index}");
        guards.push(Arc::new(mutex(&locker, &name)?.lock().await?));
        freed.push(admin.freed(&admin.node(&name).await?).await?);
        lockers.push(locker);
        taps.push(tap);
    }
    Ok(Holders { lockers, taps, guards, freed })
}

/// Waits until each client has an answer to a heartbeat that it sent after the stall.
async fn until_answered(taps: &[Tap], stalled: Instant) -> Result<(), Failed> {
    // The waiting heartbeats are answered first, and the next ones right after that.
    let answered = |tap: &Tap| tap.newest().is_some_and(|sync| sync.sent > stalled);
    while !taps.iter().all(answered) {
        if stalled.elapsed() > SESSION {
            return Err("the clients sent no heartbeat after the stall".into());
        }
        // No sleep: the freeze must come before the leader's next ping.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Renews again and again. A failed renewal does not matter, because the test is about the end of
/// the lease.
fn renew(guard: Arc<LockGuard>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let _ = guard.renew().await;
            sleep(RENEWALS).await;
        }
    })
}
