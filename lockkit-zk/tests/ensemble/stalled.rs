//! A client that stalls, is answered once, and then has its follower frozen.
//!
//! Nobody told the leader of the sessions during the stall. The heartbeat after it is answered by way of the leader,
//! which does not touch their timers; that the follower heard of the clients would reach the leader with its next
//! ping, which it does not live to answer. So the leader frees the nodes a session timeout after the *stall* began.
//! Whoever counts from the last answered heartbeat, or two thirds of the timeout from there, is wrong.

use std::{
    net::SocketAddr,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_core::LockGuard;
use lockkit_fixture::{ZooKeeperEnsemble, ZooKeeperOptions};
use tokio::{runtime, sync::oneshot, time::sleep};

use crate::{
    support::{Admin, SOON, locker, mutex, until, within},
    tap::Tap,
    vigil::Vigil,
};

const HOLDERS: usize = 20;
const SESSION: Duration = Duration::from_secs(6);
/// So long that a lease of two thirds of the timeout from its end outlives the node, and so short that a lease of two
/// thirds from its begin outlives the stall.
const STALL: Duration = Duration::from_millis(3_200);
/// The driver renews more rarely, which would hide for how long a proof is believed.
const RENEWALS: Duration = Duration::from_millis(20);
/// A ping of the leader, every 250 ms, may come between the answers and the freeze, or a client may connect anew: then
/// the leader's timer is young, and nothing was at stake.
const MOST_ROUNDS: usize = 3;

pub(crate) async fn stalled() -> Result<(), Failed> {
    let ensemble = ZooKeeperEnsemble::start(3, ZooKeeperOptions::default())?;
    let mut sprung = 0;
    for _ in 0..MOST_ROUNDS {
        sprung += round(&ensemble).await?;
        if sprung >= HOLDERS / 2 {
            return Ok(());
        }
        ensemble.wait_until_whole()?;
    }
    Err(format!("the trap sprung for {sprung} holders in {MOST_ROUNDS} rounds, which proves too little")
        .into())
}

/// For how many holders the leader freed the node within two thirds of the timeout from the answered heartbeat.
async fn round(ensemble: &ZooKeeperEnsemble) -> Result<usize, Failed> {
    let (leader, follower) = (ensemble.leader()?, ensemble.followers()[0]);
    let admin = Admin::on(ensemble.node(leader).addr()).await?;
    let (mut clients, mut taps, mut guards) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..HOLDERS {
        let tap = Tap::on(ensemble.node(follower).addr())?;
        let (client, guard) = Client::start(index, tap.addr()).await?;
        taps.push(tap);
        clients.push(client);
        guards.push(guard);
    }
    let mut freed = Vec::new();
    for index in 0..HOLDERS {
        let node = admin.node(&name(index)).await?;
        freed.push(admin.freed(&node).await?);
    }
    let start = Instant::now();
    let vigil = Vigil::over(guards);
    let steady = |index: usize| vigil.guard(index).remaining() + start.elapsed() > SESSION + SESSION / 4;
    until("heartbeats prove the sessions", async || (0..HOLDERS).all(steady).then_some(())).await?;

    // An answer waits for each client in its socket when it wakes up: with nothing there it would first see how late
    // it is, and connect anew.
    taps.iter().for_each(|tap| tap.hold(true));
    until("an answer to each client is held back", async || taps.iter().all(Tap::holds).then_some(()))
        .await?;
    clients.iter_mut().for_each(Client::stall);
    sleep(STALL / 2).await;
    let released = Instant::now();
    taps.iter().for_each(|tap| tap.hold(false));
    let answered = |tap: &Tap| tap.newest().is_some_and(|sync| sync.sent > released);
    while !taps.iter().all(answered) {
        if released.elapsed() > STALL {
            return Err("the clients sent no heartbeat after the stall".into());
        }
        // No sleep: the freeze must beat the leader's next ping.
        tokio::task::yield_now().await;
    }
    ensemble.node(follower).pause()?;
    let frozen = Instant::now();
    let beats: Vec<_> = taps.iter().filter_map(Tap::newest).collect();

    let mut sprung = 0;
    let (mut least, mut earliest) = (SESSION, SESSION);
    let connections: Vec<_> = taps.iter().map(Tap::connections).collect();
    for (index, (freed, beat)) in freed.into_iter().zip(&beats).enumerate() {
        let freed = within(SOON, "the leader frees the node", freed).await??;
        let seen = vigil.seen(index);
        let lost = seen.lost.ok_or("C3: is_held() is true though the leader has freed the node")?;
        assert!(seen.held < freed, "C3: held {:?} after the leader freed the node", seen.held - freed);
        assert!(lost < freed, "C3: the loss was seen {:?} late", lost - freed);
        println!(
            "  {index}: {} conns, beat {:?}, lost {:?}, freed {:?}",
            connections[index],
            beat.sent - released,
            lost - released,
            freed - released
        );
        least = least.min(freed - lost);
        earliest = earliest.min(freed - beat.sent);
        // One that was lost before the freeze may have deleted its node by itself.
        if lost > frozen && freed - beat.sent < SESSION * 2 / 3 {
            sprung += 1;
        }
    }
    println!(
        "frozen {:?} after the first heartbeat; the first node freed {earliest:?} after an answered heartbeat, {sprung} of \
         {HOLDERS} within 2/3 of the timeout; lost at least {least:?} before",
        beats.iter().map(|beat| frozen - beat.sent).max().unwrap_or_default()
    );
    ensemble.node(follower).resume()?;
    drop(vigil);
    for client in clients {
        client.end().await?;
    }
    Ok(sprung)
}

fn name(index: usize) -> String {
    format!("held {index}")
}

/// A locker on a runtime of its own with one thread.
struct Client {
    stall: Option<oneshot::Sender<()>>,
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<Result<(), Failed>>,
}

impl Client {
    async fn start(index: usize, server: SocketAddr) -> Result<(Self, Arc<LockGuard>), Failed> {
        let (stall, stalled) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let (ready, started) = oneshot::channel();
        let thread = thread::spawn(move || {
            // It looks at its sockets before each task: the client's own clock must not win against the answer.
            let mut runtime = runtime::Builder::new_current_thread();
            runtime.enable_all().event_interval(1).global_queue_interval(u32::MAX).build()?.block_on(async {
                let locker = locker(&[server], SESSION).await?;
                let guard = Arc::new(mutex(&locker, &name(index))?.lock().await?);
                let _ = ready.send(Arc::clone(&guard));
                let renewals = tokio::spawn(async move {
                    loop {
                        // A failure is what the test is about; it says nothing, and the lease goes on.
                        let _ = guard.renew().await;
                        sleep(RENEWALS).await;
                    }
                });
                stalled.await?;
                // Runs first after the stall, and then the sockets are looked at.
                tokio::spawn(async {});
                thread::sleep(STALL);
                ended.await?;
                renewals.abort();
                Ok(locker.shutdown().await?)
            })
        });
        let guard = within(SOON, "a holder holds", started).await??;
        Ok((Self { stall: Some(stall), end, thread }, guard))
    }

    fn stall(&mut self) {
        if let Some(stall) = self.stall.take() {
            let _ = stall.send(());
        }
    }

    async fn end(self) -> Result<(), Failed> {
        let _ = self.end.send(());
        tokio::task::spawn_blocking(move || self.thread.join().expect("it returns its errors")).await?
    }
}
