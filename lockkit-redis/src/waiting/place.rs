//! One waiter.

use std::{collections::hash_map::Entry, sync::Arc, time::Duration};

use lockkit_core::{
    Clock, OwnerId, Tick,
    spi::{Hint, Lease},
};

use super::{
    Handover, Sighting,
    rooms::{Room, Rooms},
};
use crate::{family::Family, keys::Keys};

/// The claim window is no shorter, as long as the ttl allows it: the waiter needs a turn of its
/// runtime.
const LEAST_WINDOW: Duration = Duration::from_millis(500);
/// Nor longer: a waiter that dies when its turn comes keeps the lock for so long, however patient
/// it was.
const LONGEST_WINDOW: Duration = Duration::from_secs(10);

/// The client of a waiter that can't be told anything.
pub(crate) const DEAF: &str = "-";
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// What the store knows of a waiter, and what the waiter has heard.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// As it stands in the store's queue.
    member: Arc<str>,
    window: Duration,
    pub(super) hint: Hint,
    /// The store has answered that it waits.
    pub(super) queued: bool,
    handover: Option<Handover>,
    /// It must ask the store.
    rung: bool,
}

impl Waiter {
    /// One that the store does not know yet.
    pub(crate) fn new(member: Arc<str>, window: Duration, hint: Hint) -> Self {
        Self { member, window, hint, queued: false, handover: None, rung: false }
    }

    pub(super) fn ring(&mut self) {
        self.rung = true;
        self.hint.ring();
    }

    pub(super) fn member(&self) -> &Arc<str> {
        &self.member
    }

    /// It was told by a message to ask, or that it has the lock.
    pub(super) fn told(&mut self, handover: Option<Handover>) {
        self.handover = handover.map(|handover| handover.within(self.window));
        self.ring();
    }

    pub(super) fn liveness(&self) -> Duration {
        liveness(self.window)
    }

    /// It is kept alive this often. One that hears nothing asks as often as it is polled.
    pub(super) fn period(&self) -> Duration {
        if hears(&self.member) { period(self.window) } else { SHORTEST_PERIOD }
    }
}

/// True if the store tells this waiter what becomes of it.
pub(crate) fn hears(member: &str) -> bool {
    !member.starts_with(DEAF)
}

/// A waiter that is handed the lock must claim it within its window, and counts as dead if nothing
/// is heard of it for twice as long.
pub(crate) fn liveness(window: Duration) -> Duration {
    window.saturating_mul(2)
}

/// A waiter is kept alive this often, and a message that was lost is missed for no longer.
pub(crate) fn period(window: Duration) -> Duration {
    (window / 3).min(LONGEST_PERIOD)
}

/// For how long a lock stays with a waiter that does not claim it.
pub(crate) fn window(op_timeout: Duration, ttl: Duration) -> Duration {
    op_timeout.clamp(LEAST_WINDOW, LONGEST_WINDOW).min(ttl)
}

/// What became of a waiter since it last looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Only the store can tell.
    Ask,
    /// It was handed the lock, and how long that is good for if it can be proved.
    Granted { fence: i64, lease: Lease },
    /// It is time to keep all waiters alive.
    Refresh,
    /// It waits. When to look again.
    Waits(Duration),
}

/// A waiter's place in its room, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    rooms: Arc<Rooms>,
    base: Arc<str>,
    owner: OwnerId,
    /// The store's last answer to this waiter itself.
    seen: Option<Sighting>,
}

impl Place {
    /// Enters the room. The store is not asked yet.
    pub(crate) fn take(
        rooms: &Arc<Rooms>,
        keys: &Arc<Keys>,
        family: Family,
        owner: OwnerId,
        waiter: Waiter,
    ) -> Self {
        let base = Arc::clone(&keys.base);
        let mut inner = rooms.lock();
        inner.owners.insert(owner, waiter);
        let room = inner
            .rooms
            .entry(Arc::clone(&base))
            .or_insert_with(|| Room::new(Arc::clone(keys), family));
        room.waiters.insert(owner);
        drop(inner);
        Self { rooms: Arc::clone(rooms), base, owner, seen: None }
    }

    /// What became of the waiter. What was heard is spent by this: a caller that is told to ask
    /// must do so.
    pub(crate) fn news(&self, with_proof: bool) -> News {
        let mut inner = self.rooms.lock();
        let inner = &mut *inner;
        let (Some(waiter), Some(room)) =
            (inner.owners.get_mut(&self.owner), inner.rooms.get(&self.base))
        else {
            return News::Ask;
        };
        let handover = waiter.handover.take();
        if std::mem::take(&mut waiter.rung) || !waiter.queued {
            let sightings = room.last_seen.iter().chain(&self.seen).filter(|_| with_proof);
            let proved = handover.and_then(|handover| {
                let lease = sightings.filter_map(|seen| handover.proved_by(*seen)).next()?;
                Some(News::Granted { fence: handover.fence, lease })
            });
            return proved.unwrap_or(News::Ask);
        }
        let due = room.due_in(waiter);
        if due.is_zero() { News::Refresh } else { News::Waits(due) }
    }

    /// What it waits for.
    pub(crate) fn room(&self) -> &str {
        &self.base
    }

    /// Whether the store must still be asked about all waiters: another one may have done so.
    pub(crate) fn is_due(&self) -> bool {
        let inner = self.rooms.lock();
        let waiter = inner.owners.get(&self.owner).filter(|waiter| waiter.queued && !waiter.rung);
        let room = inner.rooms.get(&self.base);
        waiter.zip(room).is_some_and(|(waiter, room)| room.due_in(waiter).is_zero())
    }

    /// The store answered this waiter itself: it waits, and the lock lapses after `ttl`.
    pub(crate) fn waits(&mut self, seen: Sighting, ttl: Option<Duration>) {
        self.seen = Some(seen);
        let mut inner = self.rooms.lock();
        let inner = &mut *inner;
        let Some(room) = inner.rooms.get_mut(&self.base) else { return };
        room.saw(seen, ttl);
        if let Some(waiter) = inner.owners.get_mut(&self.owner) {
            waiter.queued = true;
        }
    }
}

impl Room {
    /// How long until this waiter has to look after all.
    fn due_in(&self, waiter: &Waiter) -> Duration {
        let due = |refreshed: Tick| refreshed.after(waiter.period()).min(self.lapse);
        self.refreshed.map_or(Duration::ZERO, |refreshed| Clock::Boot.now().until(due(refreshed)))
    }

    pub(super) fn saw(&mut self, seen: Sighting, ttl: Option<Duration>) {
        self.last_seen = Some(seen);
        // Counted from now: the server's answer is no older.
        self.lapse = ttl.map_or(Tick::NEVER, |ttl| Clock::Boot.now().after(ttl));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.rooms.lock();
        inner.owners.remove(&self.owner);
        let Entry::Occupied(mut room) = inner.rooms.entry(Arc::clone(&self.base)) else { return };
        room.get_mut().waiters.remove(&self.owner);
        if room.get().waiters.is_empty() && self.rooms.close(room.get()) {
            room.remove();
        }
    }
}
