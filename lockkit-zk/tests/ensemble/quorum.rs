//! A leader that has lost its followers without noticing, and the proof that a heartbeat gives
//! then.

use lockkit_core::ErrorKind;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use lockkit_fixture::{ZooKeeperEnsemble, ZooKeeperOptions};
use lockkit_zk::Heartbeat;

use crate::{
    support::{Admin, locker_by, mutex, until},
    vigil::Vigil,
};

const SESSION: Duration = Duration::from_secs(6);
/// 10 s with ticks of 500 ms. In this time the leader notices nothing.
const PATIENCE: &str = "syncLimit=20";

/// With both followers frozen, no write can be agreed on. The leader still answers `sync` alone. So
/// a holder with heartbeats by `sync` keeps its lease for as long as the leader believes that it
/// leads. The lease assumes that such a leader stops within a third of the session timeout after
/// its successor's start. This test does not show that: frozen followers elect no leader, so no
/// other client can hold the lock here.
pub(crate) async fn frozen_followers() -> Result<(), Failed> {
    let ensemble = ZooKeeperEnsemble::start(3, ZooKeeperOptions::default().with_config(PATIENCE))?;
    let leader = ensemble.leader()?;
    let followers = ensemble.followers();
    let server = ensemble.node(leader).addr();
    let admin = Admin::on(server).await?;
    for heartbeat in [Heartbeat::Sync, Heartbeat::Write] {
        let locker = locker_by(&[server], SESSION, heartbeat).await?;
        let vigil = Vigil::over(vec![mutex(&locker, "held")?.lock().await?]);
        let start = Instant::now();
        let steady = || vigil.guard(0).remaining() + start.elapsed() > SESSION + SESSION / 4;
        until("heartbeats prove the session", async || steady().then_some(())).await?;

        // Right after the freeze no write is under way that a `sync` would have to wait for.
        let frozen = Instant::now();
        for &follower in &followers {
            ensemble.node(follower).pause()?;
        }
        admin.sync().await?;
        until("a session timeout has passed", async || (frozen.elapsed() > SESSION).then_some(()))
            .await?;
        let lost = vigil.seen(0).lost;
        println!("{heartbeat:?}: lost {:?} after the freeze", lost.map(|lost| lost - frozen));
        match heartbeat {
            Heartbeat::Write => assert!(
                lost.is_some_and(|lost| lost - frozen < SESSION),
                "C3: a leader without a quorum proved the session: {lost:?}"
            ),
            _ => {
                admin.sync().await?;
                assert_eq!(lost, None, "sync is answered, which is what the default relies on");
            }
        }
        for &follower in &followers {
            ensemble.node(follower).resume()?;
        }
        ensemble.wait_until_whole()?;
        match vigil.end().pop().expect("one").release().await {
            Err(error) if error.kind() == ErrorKind::Lost => {
                assert!(lost.is_some(), "C7: {error}");
            }
            released => {
                released?;
                assert_eq!(lost, None, "C7: it was released");
            }
        }
        locker.shutdown().await?;
    }
    Ok(())
}
