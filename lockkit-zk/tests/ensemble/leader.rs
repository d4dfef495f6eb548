//! Leaders that are killed, and leaders that are paused until they have a successor.

use lockkit_core::{ErrorKind, FencingToken, Locker};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use lockkit_fixture::{ZooKeeperEnsemble, ZooKeeperOptions};

use crate::{
    support::{Admin, SOON, all, contend, locker, mutex, slack, within},
    vigil::Vigil,
};

const LOCKERS: usize = 3;
const KILLS: usize = 3;
/// The longest timeout that servers with this tick grant.
const LONG: Duration = Duration::from_secs(10);
/// The time until an ensemble that lost its leader grants again.
const ELECTION: Duration = Duration::from_secs(2);
/// Two thirds of it have room for twice the election and the servers' patience of 2 s.
const SESSION: Duration = Duration::from_secs(8);

pub(crate) async fn killed() -> Result<(), Failed> {
    let mut ensemble = ZooKeeperEnsemble::start(3, ZooKeeperOptions::default())?;
    let mut lockers = Vec::new();
    let mut guards = Vec::new();
    let mut nodes = Vec::new();
    let admin = Admin::on(ensemble.node(0).addr()).await?;
    for index in 0..LOCKERS {
        let locker = locker(&all(&ensemble), LONG).await?;
        let name = format!("held {index}");
        guards.push(mutex(&locker, &name)?.lock().await?);
        nodes.push(admin.node(&name).await?);
        lockers.push(locker);
    }
    drop(admin);
    let tokens: Vec<_> = guards.iter().map(|guard| guard.fencing_token()).collect();
    let vigil = Vigil::over(guards);
    for round in 0..KILLS {
        let leader = ensemble.leader()?;
        let killed = Instant::now();
        ensemble.node_mut(leader).kill()?;
        let gaps = new_grants(&lockers, round, killed).await?;
        println!("killed leader {leader}; new grants after {gaps:?}");
        assert!(
            gaps.iter().all(|&gap| gap < ELECTION + slack()),
            "C8: new grants only after {gaps:?}"
        );
        ensemble.node_mut(leader).restart()?;
        ensemble.wait_until_whole()?;
        for (index, token) in tokens.iter().enumerate() {
            assert_eq!(
                vigil.seen(index).lost,
                None,
                "C3: a lock was lost with the leader, round {round}"
            );
            assert_eq!(vigil.guard(index).fencing_token(), *token, "C4: one grant, one token");
            let other = &lockers[(index + 1) % LOCKERS];
            assert!(
                mutex(other, &format!("held {index}"))?.try_lock().await?.is_none(),
                "C1: two holders"
            );
        }
    }
    let admin = Admin::on(ensemble.node(0).addr()).await?;
    for node in &nodes {
        assert!(admin.has(node).await?, "{} is not the node it was", node.path);
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
async fn new_grants(
    lockers: &[Locker],
    round: usize,
    killed: Instant,
) -> Result<Vec<Duration>, Failed> {
    let mut grants = Vec::new();
    for (index, locker) in lockers.iter().enumerate() {
        grants.push(contend(locker, &format!("new {index} {round}"))?);
    }
    let mut gaps = Vec::new();
    for grant in grants {
        let (guard, at) = within(SOON, "a lock is granted under the next leader", grant).await??;
        gaps.push(at - killed);
        guard.release().await?;
    }
    Ok(gaps)
}

pub(crate) async fn paused() -> Result<(), Failed> {
    let ensemble = ZooKeeperEnsemble::start(3, ZooKeeperOptions::default())?;
    for resume_early in [false, true] {
        pause(&ensemble, resume_early).await?;
        ensemble.wait_until_whole()?;
    }
    Ok(())
}

/// Tests holders on a leader that is paused until it has a successor. If early, the leader resumes
/// as soon as it has a successor, with the requests that its clients sent meanwhile. If late, it
/// resumes only when the lock has its next holder.
async fn pause(ensemble: &ZooKeeperEnsemble, resume_early: bool) -> Result<(), Failed> {
    let leader = ensemble.leader()?;
    let others: Vec<_> =
        ensemble.followers().into_iter().map(|node| ensemble.node(node).addr()).collect();
    let bound = locker(&[ensemble.node(leader).addr()], SESSION).await?;
    let free = locker(&all(ensemble), SESSION).await?;
    let next = locker(&others, SESSION).await?;
    let guards = vec![mutex(&bound, "bound")?.lock().await?, mutex(&free, "free")?.lock().await?];
    let vigil = Vigil::over(guards);
    let waiter = contend(&next, "bound")?;
    let other_waiter = contend(&next, "free")?;
    until_both_wait(&next).await?;

    let paused = Instant::now();
    ensemble.node(leader).pause()?;
    let successor = ensemble.leader_other_than(leader)?;
    let elected = paused.elapsed();
    if resume_early {
        ensemble.node(leader).resume()?;
        ensemble.wait_until_whole()?;
        // Whether the lock was lost or kept, its holder releases it, and the waiter follows.
    } else {
        within(SOON, "the lock of the holder on the paused leader is freed", async {
            while !waiter.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await?;
        ensemble.node(leader).resume()?;
    }
    let kept = vigil.seen(0).lost.is_none();
    println!(
        "paused leader {leader}, {successor} leads after {elected:?}; the holder on it kept the lock: {kept}"
    );
    assert!(resume_early || !kept, "C3: held beyond the next holder's grant");
    assert_eq!(
        vigil.seen(1).lost,
        None,
        "C3: a lock was lost though two other servers were in reach"
    );
    assert!(!other_waiter.is_finished(), "C1: two holders");

    let (last, tokens) = release_both(vigil).await?;
    for ((waiter, last), token) in [(waiter, last), (other_waiter, paused)].into_iter().zip(tokens)
    {
        let (guard, at) = within(SOON, "the waiter is granted", waiter).await??;
        assert!(last < at, "C1: held at {:?}, granted at {:?}", last - paused, at - paused);
        assert!(guard.fencing_token() > token, "C4: a token must rise");
        guard.release().await?;
    }
    for locker in [bound, free, next] {
        locker.shutdown().await?;
    }
    Ok(())
}

async fn until_both_wait(next: &Locker) -> Result<(), Failed> {
    let queued = async || {
        let bound = mutex(next, "bound")?.inspect().await?;
        let free = mutex(next, "free")?.inspect().await?;
        Ok::<_, Failed>((bound.waiters == Some(1) && free.waiters == Some(1)).then_some(()))
    };
    crate::support::until("both are waited for", async || queued().await.ok().flatten()).await
}

/// Returns until when the bound lock was held, and the tokens of both holds.
async fn release_both(vigil: Vigil) -> Result<(Instant, [FencingToken; 2]), Failed> {
    // Looks until both holds end. The guards are checked once more during the hand-over.
    let seen = vigil.seen(0);
    let tokens = [vigil.guard(0).fencing_token(), vigil.guard(1).fencing_token()];
    let mut guards = vigil.end();
    let free_guard = guards.pop().expect("two");
    let bound_guard = guards.pop().expect("two");
    let still = bound_guard.is_held();
    let last = if still { Instant::now() } else { seen.held };
    free_guard.release().await?;
    match bound_guard.release().await {
        Err(error) if error.kind() == ErrorKind::Lost => {
            assert!(!still, "C7: {error}, and is_held() was true");
        }
        released => {
            released?;
            assert!(still, "C7: it was released, and is_held() was false");
        }
    }
    Ok((last, tokens))
}
