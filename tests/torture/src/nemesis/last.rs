//! The last fault of a round: a holder dies, and no other fault disturbs the next holder (C9).

use std::time::Duration;

use lockkit::{Locker, spi};
use tokio::time::{Instant, sleep, timeout};

use super::{Fleet, Notes, ours::kill};
use crate::{
    error::Result,
    history::{Lock, Op},
    worker::{Locks, inspect},
};

/// The time to find a process that holds a lock with waiters.
const SEARCH: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(500);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Kills a process that holds a lock which all processes want. If it finds none, it kills another
/// process by `chance`, a random number.
pub(crate) async fn kill_a_holder(
    fleet: &mut Fleet,
    locker: &Locker,
    locks: &Locks,
    notes: &Notes,
    chance: u64,
) -> Result<()> {
    let any = usize::try_from(chance).unwrap_or_default() % fleet.places().len().max(1);
    let place = caught(fleet, locker, locks).await.unwrap_or(any);
    kill(fleet, place, notes).await
}

/// Stops a process while it holds a lock, so that it cannot release the lock before the kill.
/// Returns the place of the process.
async fn caught(fleet: &Fleet, locker: &Locker, locks: &Locks) -> Option<usize> {
    let end = Instant::now() + SEARCH;
    loop {
        for lock in locks.hot() {
            let Some(op) = holder(locker, lock).await else { continue };
            let of_op = fleet.places().iter().position(|place| place.child.number() == op.process);
            let Some(place) = of_op else { continue };
            let child = &fleet.places()[place].child;
            if child.stop().is_err() {
                continue;
            }
            if holder(locker, lock).await == Some(op) {
                return Some(place);
            }
            // The stop was too late, and the process no longer holds the lock.
            let _ = child.go_on();
        }
        if locks.hot().is_empty() || Instant::now() > end {
            return None;
        }
        sleep(BETWEEN_LOOKS).await;
    }
}

/// The claim that holds the lock exclusively.
async fn holder(locker: &Locker, lock: &Lock) -> Option<Op> {
    let seen = timeout(LOOK, inspect(locker, lock)).await.ok()?.ok()?;
    let alone = seen.holders.iter().find(|holder| holder.mode == spi::Mode::Exclusive)?;
    alone.label.as_deref()?.parse().ok()
}
