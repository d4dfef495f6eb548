//! A follower that is cut off from its leader is asked for a note, and has an old one.

use std::time::Duration;

use libtest_mimic::Failed;
use lockkit_core::{Note, Noted};
use lockkit_fixture::{NamespacedEnsemble, ZooKeeperOptions};

use crate::support::{locker, mutex, until};

const SESSION: Duration = Duration::from_secs(6);

pub(crate) async fn old() -> Result<(), Failed> {
    let mut ensemble = NamespacedEnsemble::start(3, ZooKeeperOptions::default())?;
    let leader = ensemble.leader()?;
    let follower = ensemble.followers()[0];
    let reader = locker(&[ensemble.node(follower).addr()], SESSION).await?;
    let writer = locker(&[ensemble.node(leader).addr()], SESSION).await?;
    let guard = mutex(&writer, "a")?.lock().await?;
    let first = Note::default().next("old");
    let second = first.next("new");
    assert_eq!(guard.write_note(&first).await?, Noted::Written);
    assert_eq!(reader.note(guard.name()).await?, first);

    ensemble.cut(follower)?;
    assert_eq!(guard.write_note(&second).await?, Noted::Written);
    match reader.note(guard.name()).await {
        Ok(told) => assert_eq!(told, second, "a follower that was cut off told an old note"),
        Err(error) => assert!(error.is_temporary(), "{error}"),
    }
    ensemble.heal()?;
    ensemble.wait_until_whole()?;
    let told = until("the follower answers", async || reader.note(guard.name()).await.ok()).await?;
    assert_eq!(told, second);
    guard.release().await?;
    for locker in [reader, writer] {
        locker.shutdown().await?;
    }
    Ok(())
}
