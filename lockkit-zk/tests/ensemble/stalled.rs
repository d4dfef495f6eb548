//! Clients that stall, are answered once, and then have their follower frozen.
//!
//! The leader hears nothing of their sessions during the stall. The heartbeat after it is answered
//! by way of the leader, which does not touch their timers; that the follower has heard of the
//! clients again would reach the leader with its next ping, which the follower does not live to
//! answer. So the leader frees the nodes a session timeout after the *stall* began. Whoever counts
//! from the last answered heartbeat, or two thirds of the timeout from there, is wrong.
//!
//! The stall is the network's, and the clients' pings are answered: a client that noticed would
//! connect anew, which starts the leader's timer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use libtest_mimic::Failed;
use lockkit_core::LockGuard;
use lockkit_fixture::{ZooKeeperEnsemble, ZooKeeperOptions};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    support::{Admin, SOON, locker, mutex, until, within},
    tap::Tap,
    vigil::Vigil,
};

const HOLDERS: usize = 20;
const SESSION: Duration = Duration::from_secs(6);
/// So long that a lease of two thirds of the timeout from its end outlives the node, and so short
/// that a lease of two thirds from its begin outlives the stall.
const STALL: Duration = Duration::from_millis(3_200);
/// The driver renews more rarely, which would hide for how long a proof is believed.
const RENEWALS: Duration = Duration::from_millis(20);
/// A ping of the leader, every 250 ms, may come between the answers and the freeze: then nothing
/// was at stake. On a busy machine this may happen often.
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

/// For how many holders the leader freed the node within two thirds of the timeout from the
/// answered heartbeat.
async fn round(ensemble: &ZooKeeperEnsemble) -> Result<usize, Failed> {
    let leader = ensemble.leader()?;
    let follower = ensemble.followers()[0];
    let admin = Admin::on(ensemble.node(leader).addr()).await?;
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
    // Those that waited are answered first, and then the next ones at once.
    let answered = |tap: &Tap| tap.newest().is_some_and(|sync| sync.sent > stalled);
    while !taps.iter().all(answered) {
        if stalled.elapsed() > SESSION {
            return Err("the clients sent no heartbeat after the stall".into());
        }
        // No sleep: the freeze must beat the leader's next ping.
        tokio::task::yield_now().await;
    }
    // What the heartbeats prove is a lease's only once the guard has asked for it.
    join_all((0..HOLDERS).map(|index| vigil.guard(index).renew())).await;
    ensemble.node(follower).pause()?;
    let frozen = Instant::now();
    let beats: Vec<_> = taps.iter().filter_map(Tap::newest).map(|sync| sync.sent).collect();
    // Of one that has noticed the stall, nothing is at stake either.
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
        // One that was lost before the freeze may have deleted its node by itself.
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

/// A failure says nothing, and the lease goes on: that it ends is what the test is about.
fn renew(guard: Arc<LockGuard>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let _ = guard.renew().await;
            sleep(RENEWALS).await;
        }
    })
}
