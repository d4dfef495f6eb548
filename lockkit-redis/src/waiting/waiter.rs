//! Keeps the state of one waiter.

use std::{collections::hash_map::Entry, sync::Arc, time::Duration};

use lockkit_core::{
    Clock, OwnerId, Tick,
    spi::{Lease, Wake},
};

use super::{
    ClockReading, Handover,
    registry::{WaiterGroup, WaiterRegistry},
};
use crate::{family::Family, keys::Keys};

/// The claim window is at least this long, if the ttl allows it, because the waiter needs a turn of
/// its runtime.
const LEAST_WINDOW: Duration = Duration::from_millis(500);
/// The claim window is at most this long. A waiter that dies when its turn comes keeps the lock for
/// this time, however patient it was.
const LONGEST_WINDOW: Duration = Duration::from_secs(10);

/// The client of a waiter without a channel for messages.
pub(crate) const NO_CHANNEL: &str = "-";
const LONGEST_PERIOD: Duration = Duration::from_secs(1);
const SHORTEST_PERIOD: Duration = Duration::from_millis(10);

/// A waiter as the store knows it, and the message that it got.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The waiter's entry in the store's queue.
    member: Arc<str>,
    window: Duration,
    pub(super) wake: Wake,
    /// The store has answered that the waiter is in the queue.
    pub(super) queued: bool,
    handover: Option<Handover>,
    /// The waiter must ask the store.
    woken: bool,
}

impl Waiter {
    /// A waiter that the store does not know yet.
    pub(crate) fn new(member: Arc<str>, window: Duration, wake: Wake) -> Self {
        Self { member, window, wake, queued: false, handover: None, woken: false }
    }

    pub(super) fn wake(&mut self) {
        self.woken = true;
        self.wake.wake();
    }

    pub(super) fn member(&self) -> &Arc<str> {
        &self.member
    }

    /// Handles a message that says to ask, or that the waiter has the lock.
    pub(super) fn told(&mut self, handover: Option<Handover>) {
        self.handover = handover.map(|handover| handover.within(self.window));
        self.wake();
    }

    pub(super) fn liveness(&self) -> Duration {
        liveness(self.window)
    }

    /// How often the waiter is kept alive. A waiter without messages asks as often as it is polled.
    pub(super) fn period(&self) -> Duration {
        if hears(&self.member) { period(self.window) } else { SHORTEST_PERIOD }
    }
}

/// True if the store sends messages to this waiter.
pub(crate) fn hears(member: &str) -> bool {
    !member.starts_with(NO_CHANNEL)
}

/// How long a waiter lives in the store without a refresh. A waiter that is handed the lock must
/// claim it within its window, which is half as long.
pub(crate) fn liveness(window: Duration) -> Duration {
    window.saturating_mul(2)
}

/// How often a waiter is kept alive. A lost message delays the waiter by no more than this.
pub(crate) fn period(window: Duration) -> Duration {
    (window / 3).min(LONGEST_PERIOD)
}

/// How long a lock stays with a waiter that does not claim it.
pub(crate) fn window(op_timeout: Duration, ttl: Duration) -> Duration {
    op_timeout.clamp(LEAST_WINDOW, LONGEST_WINDOW).min(ttl)
}

/// The state of a waiter since its last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Only the store knows.
    Ask,
    /// The lock was handed to the waiter, and the lease is proved.
    Granted { token: i64, lease: Lease },
    /// It is time to keep all waiters alive.
    Refresh,
    /// The waiter waits, and must look again after this time.
    Waits(Duration),
}

/// A waiter's entry in the registry, removed when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<WaiterRegistry>,
    base: Arc<str>,
    owner: OwnerId,
    /// The store's last answer to this waiter itself.
    seen: Option<ClockReading>,
}

impl Registration {
    /// Enters the waiter into the registry, without a request to the store.
    pub(crate) fn enter(
        registry: &Arc<WaiterRegistry>,
        keys: &Arc<Keys>,
        family: Family,
        owner: OwnerId,
        waiter: Waiter,
    ) -> Self {
        let base = Arc::clone(&keys.base);
        let mut inner = registry.lock();
        inner.owners.insert(owner, waiter);
        let group = inner
            .groups
            .entry(Arc::clone(&base))
            .or_insert_with(|| WaiterGroup::new(Arc::clone(keys), family));
        group.waiters.insert(owner);
        drop(inner);
        Self { registry: Arc::clone(registry), base, owner, seen: None }
    }

    /// The state of the waiter. This uses up the message that the waiter got, so a caller that gets
    /// `News::Ask` must ask.
    pub(crate) fn news(&self, with_proof: bool) -> News {
        let mut inner = self.registry.lock();
        let inner = &mut *inner;
        let (Some(waiter), Some(group)) =
            (inner.owners.get_mut(&self.owner), inner.groups.get(&self.base))
        else {
            return News::Ask;
        };
        let handover = waiter.handover.take();
        if std::mem::take(&mut waiter.woken) || !waiter.queued {
            let readings = group.last_seen.iter().chain(&self.seen).filter(|_| with_proof);
            let proved = handover.and_then(|handover| {
                let lease = readings.filter_map(|seen| handover.proved_by(*seen)).next()?;
                Some(News::Granted { token: handover.token, lease })
            });
            return proved.unwrap_or(News::Ask);
        }
        let due = group.due_in(waiter);
        if due.is_zero() { News::Refresh } else { News::Waits(due) }
    }

    /// The group in which the waiter waits.
    pub(crate) fn group(&self) -> &str {
        &self.base
    }

    /// True if the store must still be asked about all waiters, because no other waiter has done
    /// so.
    pub(crate) fn is_due(&self) -> bool {
        let inner = self.registry.lock();
        let waiter = inner.owners.get(&self.owner).filter(|waiter| waiter.queued && !waiter.woken);
        let group = inner.groups.get(&self.base);
        waiter.zip(group).is_some_and(|(waiter, group)| group.due_in(waiter).is_zero())
    }

    /// Records the store's answer to this waiter itself: it waits, and the lock lapses after `ttl`.
    pub(crate) fn waits(&mut self, seen: ClockReading, ttl: Option<Duration>) {
        self.seen = Some(seen);
        let mut inner = self.registry.lock();
        let inner = &mut *inner;
        let Some(group) = inner.groups.get_mut(&self.base) else { return };
        group.saw(seen, ttl);
        if let Some(waiter) = inner.owners.get_mut(&self.owner) {
            waiter.queued = true;
        }
    }
}

impl WaiterGroup {
    /// How long until this waiter must look after all waiters.
    fn due_in(&self, waiter: &Waiter) -> Duration {
        let due = |refreshed: Tick| refreshed.after(waiter.period()).min(self.lapse);
        self.refreshed.map_or(Duration::ZERO, |refreshed| Clock::Boot.now().until(due(refreshed)))
    }

    pub(super) fn saw(&mut self, seen: ClockReading, ttl: Option<Duration>) {
        self.last_seen = Some(seen);
        // Counted from now. The server's answer is older, so the lock lapses by then.
        self.lapse = ttl.map_or(Tick::NEVER, |ttl| Clock::Boot.now().after(ttl));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        inner.owners.remove(&self.owner);
        let Entry::Occupied(mut group) = inner.groups.entry(Arc::clone(&self.base)) else { return };
        group.get_mut().waiters.remove(&self.owner);
        if group.get().waiters.is_empty() && self.registry.close(group.get()) {
            group.remove();
        }
    }
}
