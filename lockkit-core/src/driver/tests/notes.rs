//! Tests that notes and renewals can share a claim.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{self, Instant},
};

use super::{TTL, World, ms, secs};
use crate::{
    LockGuard,
    error::ErrorKind,
    fake::{Fault, KINDS, Kind, Op},
    spi::{Note, Noted},
};

/// Writes one note after the other until `end`.
async fn writes_notes(guard: &LockGuard, pause: Duration, end: Instant) {
    let mut note = Note::default();
    while Instant::now() < end {
        note = note.next("busy");
        assert_eq!(guard.write_note(&note).await.unwrap(), Noted::Written);
        time::sleep(pause).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c10_notes_back_to_back_do_not_starve_renewal() {
    for kind in KINDS {
        for pause in [0, 1, 5, 20] {
            let world = World::new(kind);
            world.store.set_latency(ms(20));
            let guard = world.mutex("a").lock().await.unwrap();
            writes_notes(&guard, ms(pause), Instant::now() + TTL * 10).await;
            let renewals = world.store.count(Op::KeepAlive);
            assert!(
                (28..=36).contains(&renewals),
                "{kind:?}: {renewals} renewals in 10 leases, {pause} ms"
            );
            drop(guard);
            world.clean(&format!("{kind:?}, {pause} ms")).await;
        }
    }
}

/// The requests of all tasks together take longer than a lease.
#[tokio::test(start_paused = true)]
async fn c10_notes_of_many_tasks_do_not_starve_renewal() {
    let world = World::new(Kind::Ttl);
    world.store.set_latency(ms(20));
    let guard = Arc::new(world.mutex("a").lock().await.unwrap());
    let end = Instant::now() + TTL * 10;
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let guard = Arc::clone(&guard);
        tasks.spawn(async move {
            while Instant::now() < end {
                match guard.write_note(&Note::new(1, "busy".to_owned())).await {
                    Ok(noted) => assert_eq!(noted, Noted::Written),
                    // The other tasks used up the bound of this call.
                    Err(error) if error.kind() == ErrorKind::Unavailable => {
                        time::sleep(ms(1)).await
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    tasks.join_all().await;
    assert!(guard.is_held());
    drop(guard);
    world.clean("").await;
}

/// The store does not answer to notes.
#[tokio::test(start_paused = true)]
async fn c10_a_note_without_an_answer_delays_a_renewal_by_one_request() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    world.store.always(Op::WriteNote, Fault::Hang);
    let end = Instant::now() + TTL * 5;
    while Instant::now() < end {
        let error = guard.write_note(&Note::new(1, "lost".to_owned())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert!(guard.is_held());
    drop(guard);
    world.clean("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_a_failed_manual_renewal_does_not_delay_the_automatic_one() {
    let world = World::new(Kind::Ttl);
    let guard = world.mutex("a").lock().await.unwrap();
    time::sleep(ms(850)).await;
    world.store.once(Op::KeepAlive, [Fault::Hang]);
    guard.renew().await.unwrap_err(); // the automatic one came due meanwhile
    let failed = Instant::now();
    time::sleep(secs(1)).await;
    let next = world.store.sent(Op::KeepAlive)[1];
    assert!(next < failed + TTL / 24, "{:?} after the failure", next - failed);
    drop(guard);
    world.clean("").await;
}
