//! What the keeper has to do. It outlives the keeper's task: a later task adopts it.

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
    hold::{Hold, HoldListener, Ticket},
    live::LiveClaim,
    locker_state::LockerState,
    queue::Gates,
};
use crate::{
    clock::{Clock, Tick},
    error::Result,
    observe::Observer,
    spi::{Attempt, Descriptor, LossReason, Released},
};

/// Timers taken in one grip of the lock. Renewals in flight are not capped: a silent shard of a
/// store must not starve the others.
const BATCH: usize = 256;

/// The due time of a renewal that never comes due. It is in the agenda all the same: a wake-up
/// moves it.
const LAST: Tick = Tick::from_nanos(u64::MAX - 1);

/// When that comes due which is asked for at once: before everything else.
const AT_ONCE: Tick = Tick::from_nanos(0);

/// An attempt that runs by itself: it owns the claim and gives it back.
pub(super) type Attempting = BoxFuture<'static, (Option<LiveClaim>, Result<Attempt>)>;

/// What works on an agenda, until nothing will come any more.
pub(crate) type Worker = fn(Arc<Agenda>) -> BoxFuture<'static, ()>;

/// Something left behind that the keeper finishes.
pub(crate) enum Cleanup {
    /// An attempt whose caller has gone.
    Attempt(Attempting, Arc<Hold>),
    /// A claim whose caller has gone, with something in the store.
    Claim(LiveClaim, Arc<Hold>),
    /// A future that was dropped midway.
    Finish(BoxFuture<'static, ()>),
    /// A guard that was dropped, or whose lock was lost; with somebody who waits for the outcome,
    /// or not.
    Release(Arc<Hold>, Option<oneshot::Sender<Result<Released>>>),
}

impl Cleanup {
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Release(_, Some(_)))
    }
}

/// The work of one locker's keeper.
pub(crate) struct Agenda {
    pub(crate) locker: Arc<LockerState>,
    pub(crate) gates: Gates,
    pub(super) worker: Worker,
    /// Whether a task works on this agenda.
    pub(super) attended: AtomicBool,
    state: Mutex<State>,
}

/// Something that is dropped when a hold without a guard ends.
type KeptAlive = Arc<dyn Any + Send + Sync>;

struct State {
    timers: BTreeMap<(Tick, u64), Arc<Hold>>,
    cleanups: Vec<Cleanup>,
    woken: Vec<Arc<Hold>>,
    /// By timers: of holds without a guard, what that would keep alive, until the task goes with
    /// its runtime.
    leaked: BTreeMap<u64, Option<KeptAlive>>,
    /// When the task wakes up by itself.
    armed: Tick,
    /// No locker and no guard is left.
    orphaned: bool,
    /// The shutdown is done.
    closed: bool,
}

/// What the task takes out of the agenda at once.
pub(crate) struct Work {
    pub(crate) due: Vec<Arc<Hold>>,
    pub(crate) cleanups: Vec<Cleanup>,
    pub(crate) woken: Vec<Arc<Hold>>,
    pub(crate) next: Tick,
    /// Nothing will come any more.
    pub(crate) last: bool,
}

impl Agenda {
    pub(crate) fn new(
        clock: Clock,
        descriptor: &Descriptor,
        observers: Vec<Arc<dyn Observer>>,
        worker: Worker,
    ) -> Self {
        Self {
            locker: Arc::new(LockerState::new(clock, descriptor, observers)),
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

    /// Puts a renewal in. One cheap insert; the task is woken only if it would sleep past it.
    pub(crate) fn schedule(&self, held: &Arc<Hold>, due: Tick) {
        let wake = self.lock().insert(held, due);
        if wake {
            self.locker.work.notify_one();
        }
    }

    /// Moves a renewal, unless it is in flight.
    pub(crate) fn reschedule(&self, held: &Arc<Hold>, due: Tick) {
        let wake = {
            let mut state = self.lock();
            state.remove(held).is_some() && state.insert(held, due)
        };
        if wake {
            self.locker.work.notify_one();
        }
    }

    /// Takes the renewal out for good; optionally leaves something to do, unless that was left
    /// before. Whoever waits for the outcome learns at once if nobody works here.
    pub(crate) fn retire(&self, held: &Arc<Hold>, mut cleanup: Option<Cleanup>) {
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

    /// Makes a renewal due now. One in flight sees `woken` when it ends.
    pub(crate) fn hasten(&self, held: &Arc<Hold>) {
        self.reschedule(held, AT_ONCE);
    }

    /// The hold goes on without a guard and keeps its keeper at work; a shutdown that has begun
    /// ends it now. Nothing is kept if it is over already, and no keeper without a task: nobody
    /// would ever let go of it.
    pub(crate) fn leak(&self, held: &Arc<Hold>, keeper: KeptAlive) {
        let mut keeper = Some(keeper);
        // Not dropped under the lock: each may be the last one.
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
        // Lowered by inserts, raised only once it has passed: short locks would wake the task each
        // time.
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

    /// The last locker or guard has gone.
    pub(crate) fn orphan(&self) {
        self.wake_with(|state| state.orphaned = true);
    }

    /// Begins the shutdown: no new claims, no renewals. Each hold gets a last ttl.
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

    /// Ends the shutdown. The task stays until then: whoever closes the backend may be dropped
    /// midway.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.locker.work.notify_one();
    }

    /// The task is gone with its runtime. Timers stay for the next task; a hold without a deadline
    /// has nobody left who watches it, and would look held for ever. What was leaked stands by
    /// itself from here on: it must not keep alive, for ever, what nobody works on.
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

    /// Renewals scheduled, and things left to do.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let state = self.lock();
        (state.timers.len(), state.cleanups.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Hopeless = (Vec<Cleanup>, Vec<Arc<Hold>>);

/// Drops the claims, even where a loss signal still knows the hold. Never call this under the
/// agenda's lock.
fn discard((cleanups, holds): Hopeless) {
    for cleanup in cleanups {
        if let Cleanup::Release(held, _) = &cleanup {
            discard_claim(held);
        }
    }
    holds.iter().for_each(|held| discard_claim(held));
}

fn discard_claim(held: &Hold) {
    if let Ok(mut slot) = held.slot.try_lock() {
        let claim = slot.take();
        drop(slot);
        drop(claim);
    }
}

impl State {
    /// True if the task would sleep past `due`. After `retire` it does nothing; a shutdown ends
    /// each hold in time, whoever inserts what.
    fn insert(&mut self, held: &Arc<Hold>, due: Tick) -> bool {
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

    /// What no task will ever do: nobody is left who could start one. Their leases end by
    /// themselves.
    fn hopeless(&mut self, attended: bool) -> Hopeless {
        if self.orphaned && !attended {
            let mut holds = mem::take(&mut self.woken);
            // Without a guard: of what was leaked.
            holds.extend(mem::take(&mut self.timers).into_values());
            holds.iter().for_each(|held| held.timer.due.store(Tick::NEVER.nanos(), Relaxed));
            (mem::take(&mut self.cleanups), holds)
        } else {
            (Vec::new(), Vec::new())
        }
    }

    fn remove(&mut self, held: &Hold) -> Option<Arc<Hold>> {
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

    fn woken(&self, held: Arc<Hold>) {
        self.wake_with(|state| state.woken.push(held));
    }

    /// Never call this under the agenda's lock.
    fn left(&self, held: &Hold, ticket: Ticket) {
        self.gates.leave(&held.name, ticket, self.locker.clock.now());
    }
}

impl fmt::Debug for Agenda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agenda").field("locker", &self.locker).finish_non_exhaustive()
    }
}
