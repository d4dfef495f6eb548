//! A client that stalls, is answered once, and then has its follower frozen.
//!
//! Nobody told the leader of the sessions during the stall. The heartbeat after it is answered by way of the leader,
//! which does not touch their timers; that the follower heard of the clients would reach the leader with its next
//! ping, which it does not live to answer. So the leader frees the nodes a session timeout after the *stall* began.
//! Whoever counts from the last answered heartbeat, or two thirds of the timeout from there, is wrong.

use std::{
    net::SocketAddr,
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
const STALL: Duration = Duration::from_millis(3_800);
/// A ping of the leader, every 250 ms, may come between the answers and the freeze: then nothing was at stake.
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
    let tap = Tap::on(ensemble.node(follower).addr())?;
    let (mut clients, guards) = Clients::start(tap.addr()).await?;
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
    let hold = Instant::now();
    tap.hold(true);
    let answered =
        |since: Instant| tap.newest().iter().flatten().filter(|sync| sync.sent > since).count() == HOLDERS;
    until("an answer to each client is held back", async || answered(hold).then_some(())).await?;
    let woke = clients.stall();
    sleep(STALL / 2).await;
    tap.hold(false);
    let woke = within(SOON, "the clients go on", woke).await??;
    while !answered(woke) {
        if woke.elapsed() > Duration::from_secs(1) {
            return Err("the clients sent no heartbeat on their old connections".into());
        }
        // No sleep: the freeze must beat the leader's next ping.
        tokio::task::yield_now().await;
    }
    ensemble.node(follower).pause()?;
    let frozen = Instant::now();
    let beats: Vec<_> = tap.newest().into_iter().flatten().collect();
    assert_eq!(beats.len(), HOLDERS, "a client connected anew");

    let mut sprung = 0;
    let (mut least, mut earliest) = (SESSION, SESSION);
    for (index, (freed, beat)) in freed.into_iter().zip(&beats).enumerate() {
        let freed = within(SOON, "the leader frees the node", freed).await??;
        let seen = vigil.seen(index);
        let lost = seen.lost.ok_or("C3: is_held() is true though the leader has freed the node")?;
        assert!(seen.held < freed, "C3: held {:?} after the leader freed the node", seen.held - freed);
        assert!(lost < freed, "C3: the loss was seen {:?} late", lost - freed);
        least = least.min(freed - lost);
        earliest = earliest.min(freed - beat.sent);
        if freed - beat.sent < SESSION * 2 / 3 {
            sprung += 1;
        }
    }
    println!(
        "frozen {:?} after the wake-up; the first node freed {earliest:?} after an answered heartbeat, {sprung} of \
         {HOLDERS} within 2/3 of the timeout; lost at least {least:?} before",
        frozen - woke
    );
    ensemble.node(follower).resume()?;
    drop(vigil.end());
    clients.end().await?;
    Ok(sprung)
}

fn name(index: usize) -> String {
    format!("held {index}")
}

/// Lockers, each with a session of its own, on one runtime with one thread.
struct Clients {
    stall: Option<oneshot::Sender<oneshot::Sender<Instant>>>,
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<Result<(), Failed>>,
}

impl Clients {
    async fn start(server: SocketAddr) -> Result<(Self, Vec<LockGuard>), Failed> {
        let (stall, stalled) = oneshot::channel::<oneshot::Sender<Instant>>();
        let (end, ended) = oneshot::channel::<()>();
        let (ready, started) = oneshot::channel();
        let thread = thread::spawn(move || {
            runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
                let (mut lockers, mut guards) = (Vec::new(), Vec::new());
                for index in 0..HOLDERS {
                    let locker = locker(&[server], SESSION).await?;
                    guards.push(mutex(&locker, &name(index))?.lock().await?);
                    lockers.push(locker);
                }
                let _ = ready.send(guards);
                let woke = stalled.await?;
                thread::sleep(STALL);
                let _ = woke.send(Instant::now());
                ended.await?;
                for locker in lockers {
                    locker.shutdown().await?;
                }
                Ok(())
            })
        });
        let guards = within(SOON, "the holders hold", started).await??;
        Ok((Self { stall: Some(stall), end, thread }, guards))
    }

    /// Stalls them; answers when they went on.
    fn stall(&mut self) -> oneshot::Receiver<Instant> {
        let (woke, awake) = oneshot::channel();
        if let Some(stall) = self.stall.take() {
            let _ = stall.send(woke);
        }
        awake
    }

    async fn end(self) -> Result<(), Failed> {
        let _ = self.end.send(());
        tokio::task::spawn_blocking(move || self.thread.join().expect("it returns its errors")).await?
    }
}
