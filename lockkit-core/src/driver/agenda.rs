//! The work of the background task. It outlives the task: a later task adopts it.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use super::{
    held::{Held, HoldListener, Ticket},
    live::LiveClaim,
    locker_state::LockerState,
    queue::Gates,
};
use crate::{
    clock::Tick,
    error::Result,
    spi::{Attempt, Descriptor, LossReason, Released},
};

/// How many timers one grip of the lock takes at most. Renewals in flight are not capped, because a
/// silent shard of a store must not starve the others.
const BATCH: usize = 256;

/// The due time of a renewal that is never due by itself. The renewal is in the agenda all the
/// same, so that a wake-up can make it due.
const LAST: Tick = Tick::from_nanos(u64::MAX - 1);

/// The due time of a renewal that must happen at once, before all others.
const AT_ONCE: Tick = Tick::from_nanos(0);

/// An attempt that runs by itself: it owns the claim and returns it at the end.
pub(super) type Attempting = BoxFuture<'static, (Option<LiveClaim>, Result<Attempt>)>;

/// Makes the future that works on an agenda until no more work can come.
pub(crate) type Worker = fn(Arc<Agenda>) -> BoxFuture<'static, ()>;

/// Something left behind that the background task finishes.
pub(crate) enum Cleanup {
    /// An attempt whose caller dropped its call.
    Attempt(Attempting, Arc<Held>),
    /// A claim whose caller dropped its call, and which may have left something in the store.
    Claim(LiveClaim, Arc<Held>),
    /// A future that was dropped midway.
    Finish(BoxFuture<'static, ()>),
    /// A guard that was dropped, or whose lock was lost. The sender is there if a caller waits for
    /// the outcome.
    Release(Arc<Held>, Option<oneshot::Sender<Result<Released>>>),
}

impl Cleanup {
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Release(_, Some(_)))
    }
}

/// The work of one locker's background task.
pub(crate) struct Agenda {
    pub(crate) locker: Arc<LockerState>,
    pub(crate) gates: Gates,
    pub(super) worker: Worker,
    /// Whether a task works on this agenda.
    pub(super) attended: AtomicBool,
    state: Mutex<State>,
}

/// A value that is dropped when a hold without a guard ends.
type KeptAlive = Arc<dyn Any + Send + Sync>;

struct State {
    timers: BTreeMap<(Tick, u64), Arc<Held>>,
    cleanups: Vec<Cleanup>,
    woken: Vec<Arc<Held>>,
    /// By timer id: for each hold without a guard, the value that it keeps alive. The value is
    /// dropped when the task ends with its runtime.
    leaked: BTreeMap<u64, Option<KeptAlive>>,
    /// When the task wakes up by itself.
    armed: Tick,
    /// No locker and no guard is left.
    orphaned: bool,
    /// The shutdown is done.
    closed: bool,
}

/// The work that the task takes out of the agenda at one time.
pub(crate) struct Work {
    pub(crate) due: Vec<Arc<Held>>,
    pub(crate) cleanups: Vec<Cleanup>,
    pub(crate) woken: Vec<Arc<Held>>,
    pub(crate) next: Tick,
    /// No more work can come.
    pub(crate) last: bool,
}

impl Agenda {
    pub(crate) fn new(locker: LockerState, descriptor: &Descriptor, worker: Worker) -> Self {
        Self {
            locker: Arc::new(locker),
            gates: Gates::new(descriptor),
            worker,
            attended: AtomicBool::new(false),
            state: Mutex::new(State {
                timers: BTreeMap::new(),
                cleanups: Vec::new(),
                woken: Vec::new(),
                leaked: BTreeMap::new(),
                armed: Tick::NEVER,
                orphaned: false,
                closed: false,
            }),
        }
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(SeqCst)
    }

    pub(crate) fn push(&self, cleanup: Cleanup) {
        self.wake_with(|state| state.cleanups.push(cleanup));
    }

    /// Puts a renewal in. This is one cheap insert, and it wakes the task only if the task would
    /// sleep too long.
    pub(crate) fn schedule(&self, held: &Arc<Held>, due: Tick) {
        let wake = self.lock().insert(held, due);
        if wake {
            self.locker.work.notify_one();
        }
    }

    /// Moves a renewal, unless it is in flight.
    pub(crate) fn reschedule(&self, held: &Arc<Held>, due: Tick) {
        let wake = {
            let mut state = self.lock();
            state.remove(held).is_some() && state.insert(held, due)
        };
        if wake {
            self.locker.work.notify_one();
        }
    }

    /// Takes the renewal out for good, and adds the cleanup. A cleanup that no caller waits for is
    /// added only once. If no task works here, a caller that waits for the outcome learns that at
    /// once.
    pub(crate) fn retire(&self, held: &Arc<Held>, mut cleanup: Option<Cleanup>) {
        let dropped = {
            let mut state = self.lock();
            let unheard = match &mut cleanup {
                Some(Cleanup::Release(_, reply)) if !self.is_attended() => reply.take(),
                _ => None,
            };
            let again = held.retired.swap(true, Relaxed);
            let idle = if again { cleanup.take_if(|cleanup| !cleanup.is_awaited()) } else { None };
            let wake = cleanup.is_some();
            state.cleanups.extend(cleanup);
            let keeper = state.leaked.remove(&held.timer.id);
            (wake, unheard, idle, state.remove(held), keeper)
        };
        if dropped.0 {
            self.locker.work.notify_one();
        }
    }

    /// Makes a renewal due now. A renewal in flight sees `woken` when it ends.
    pub(crate) fn hasten(&self, held: &Arc<Held>) {
        self.reschedule(held, AT_ONCE);
    }

    /// Keeps the hold without a guard, and keeps its `keeper` alive for it. If a shutdown has
    /// begun, the hold ends now. Nothing is kept if the hold is over already. Without a task,
    /// `keeper` is not kept, because it would never be dropped.
    pub(crate) fn leak(&self, held: &Arc<Held>, keeper: KeptAlive) {
        let mut keeper = Some(keeper);
        // Dropped only after the lock is free, because each of these may be the last reference.
        let (_before, wake) = {
            let mut state = self.lock();
            let before = if held.retired.load(Relaxed) {
                None
            } else {
                let kept = keeper.take_if(|_| self.is_attended());
                held.leaked.store(true, Relaxed);
                state.leaked.insert(held.timer.id, kept).flatten()
            };
            let closing = self.locker.draining_since().is_some();
            (before, closing && state.remove(held).is_some() && state.insert(held, Tick::NEVER))
        };
        if wake {
            self.locker.work.notify_one();
        }
    }

    pub(crate) fn take_work(&self) -> Work {
        let now = self.locker.clock.now();
        let mut due = Vec::new();
        let mut state = self.lock();
        while due.len() < BATCH
            && let Some(entry) = state.timers.first_entry()
            && entry.key().0 <= now
        {
            let held = entry.remove();
            held.timer.due.store(Tick::NEVER.nanos(), Relaxed);
            due.push(held);
        }
        // Inserts lower `armed`, and only its passing raises it. Otherwise each short lock would
        // wake the task.
        if state.armed <= now {
            state.armed = state.timers.first_key_value().map_or(Tick::NEVER, |(key, _)| key.0);
        }
        Work {
            due,
            cleanups: mem::take(&mut state.cleanups),
            woken: mem::take(&mut state.woken),
            next: state.armed,
            last: state.orphaned || (state.closed && self.locker.live_claims() == 0),
        }
    }

    /// The last locker or guard was dropped.
    pub(crate) fn orphan(&self) {
        self.wake_with(|state| state.orphaned = true);
    }

    /// Begins the shutdown: no new claims, and no more renewals. Each hold gets one last ttl.
    pub(crate) fn drain(&self) {
        {
            let mut state = self.lock();
            self.locker.begin_draining();
            let late = state.timers.iter().filter(|((due, _), held)| *due > held.closing_end());
            let late: Vec<_> = late.map(|(_, held)| Arc::clone(held)).collect();
            for held in late {
                state.insert(&held, Tick::NEVER);
            }
        }
        self.locker.closing.notify_waiters();
        self.locker.work.notify_one();
    }

    /// Ends the shutdown. The task runs until then, because the call that closes the backend may be
    /// dropped midway.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.locker.work.notify_one();
    }

    /// The task has ended with its runtime. Timers stay for the next task. A hold without a
    /// deadline is lost now, because no task watches it, and it would look held for ever. A leaked
    /// hold no longer keeps its value alive, because no task works on that hold.
    pub(crate) fn abandon(&self) {
        let (unwatched, replies, hopeless, keepers): (Vec<_>, Vec<_>, Hopeless, Vec<_>) = {
            let mut state = self.lock();
            self.attended.store(false, SeqCst);
            let unwatched =
                state.timers.values().filter(|held| held.lease_end() == Tick::NEVER).cloned();
            let unwatched = unwatched.collect();
            let replies = state.cleanups.iter_mut().filter_map(|cleanup| match cleanup {
                Cleanup::Release(_, reply) => reply.take(),
                _ => None,
            });
            let replies = replies.collect();
            let keepers = state.leaked.values_mut().filter_map(Option::take).collect();
            (unwatched, replies, state.hopeless(false), keepers)
        };
        drop(replies);
        discard(hopeless);
        for held in unwatched {
            held.lose(LossReason::SessionLost);
        }
        drop(keepers);
        self.locker.quiet.notify_waiters();
    }

    fn wake_with(&self, change: impl FnOnce(&mut State)) {
        let hopeless = {
            let mut state = self.lock();
            change(&mut state);
            state.hopeless(self.is_attended())
        };
        discard(hopeless);
        self.locker.work.notify_one();
    }

    /// How many renewals are scheduled, and how many cleanups are left.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let state = self.lock();
        (state.timers.len(), state.cleanups.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Hopeless = (Vec<Cleanup>, Vec<Arc<Held>>);

/// Drops the claims, even where a loss signal still has a reference to the hold. Never call this
/// under the agenda's lock.
fn discard((cleanups, holds): Hopeless) {
    for cleanup in cleanups {
        if let Cleanup::Release(held, _) = &cleanup {
            discard_claim(held);
        }
    }
    holds.iter().for_each(|held| discard_claim(held));
}

fn discard_claim(held: &Held) {
    if let Ok(mut slot) = held.slot.try_lock() {
        let claim = slot.take();
        drop(slot);
        drop(claim);
    }
}

impl State {
    /// Puts a timer in; true if the task would sleep past `due`. After `retire` this does nothing.
    /// A shutdown ends each hold in time, whatever `due` is.
    fn insert(&mut self, held: &Arc<Held>, due: Tick) -> bool {
        if held.retired.load(Relaxed) {
            return false;
        }
        let end = held.closing_end();
        let due = if held.woken.is_woken() {
            AT_ONCE
        } else {
            due.min(held.deadline()).min(end).min(LAST)
        };
        self.remove(held);
        held.timer.due.store(due.nanos(), Relaxed);
        self.timers.insert((due, held.timer.id), Arc::clone(held));
        let earlier = due < self.armed;
        if earlier {
            self.armed = due;
        }
        earlier
    }

    /// Takes out the work that no task will ever do, because no handle is left that could start a
    /// task. The leases of these holds end by themselves.
    fn hopeless(&mut self, attended: bool) -> Hopeless {
        if self.orphaned && !attended {
            let mut holds = mem::take(&mut self.woken);
            // These holds have no guard: they were leaked.
            holds.extend(mem::take(&mut self.timers).into_values());
            holds.iter().for_each(|held| held.timer.due.store(Tick::NEVER.nanos(), Relaxed));
            (mem::take(&mut self.cleanups), holds)
        } else {
            (Vec::new(), Vec::new())
        }
    }

    fn remove(&mut self, held: &Held) -> Option<Arc<Held>> {
        let due = held.timer.due.swap(Tick::NEVER.nanos(), Relaxed);
        if due == Tick::NEVER.nanos() {
            return None;
        }
        self.timers.remove(&(Tick::from_nanos(due), held.timer.id))
    }
}

impl HoldListener for Agenda {
    fn locker(&self) -> &LockerState {
        &self.locker
    }

    fn woken(&self, held: Arc<Held>) {
        self.wake_with(|state| state.woken.push(held));
    }

    /// Never call this under the agenda's lock.
    fn left(&self, held: &Held, ticket: Ticket) {
        self.gates.leave(&held.name, ticket, self.locker.clock);
    }
}

impl fmt::Debug for Agenda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agenda").field("locker", &self.locker).finish_non_exhaustive()
    }
}
