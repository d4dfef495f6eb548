//! What the keeper has to do. It outlives the keeper's task: a later task adopts it.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot};

use super::{bid::Attempting, gate::Gates, held::Held, keeper::Keeper, live::LiveClaim, shared::Roll};
use crate::{
    clock::{Clock, Tick},
    error::{Error, ErrorKind, Result},
    name::LockName,
    observe::{Event, Observer, What},
    spi::{Cadence, Descriptor, LossReason, Released},
};

/// Timers taken in one grip of the lock. Renewals in flight are not capped: a silent shard of a store must not
/// starve the others.
const BATCH: usize = 256;

/// When that comes due which never does. It is put in all the same: a hint moves it.
const LAST: Tick = Tick::from_nanos(u64::MAX - 1);

/// When that comes due which is asked for at once: before everything else.
const AT_ONCE: Tick = Tick::from_nanos(0);

/// Something left behind that the keeper finishes.
pub(crate) enum Chore {
    /// An attempt whose caller has gone.
    Attempt(Attempting, Arc<Held>),
    /// A claim whose caller has gone, with something in the store.
    Claim(LiveClaim, Arc<Held>),
    /// A future that was dropped midway.
    Finish(BoxFuture<'static, ()>),
    /// A guard that was dropped, or whose lock was lost; with somebody who waits for the outcome, or not.
    Release(Arc<Held>, Option<oneshot::Sender<Result<Released>>>),
}

impl Chore {
    fn is_awaited(&self) -> bool {
        matches!(self, Self::Release(_, Some(_)))
    }
}

/// The work of one locker's keeper.
pub(crate) struct Agenda {
    pub(crate) clock: Clock,
    /// The backend's short name, for errors and traces.
    pub(crate) store: &'static str,
    pub(crate) cadence: Cadence,
    pub(crate) gates: Gates,
    /// Whether the backend gives leases of another length than the ttl.
    pub(crate) extends: bool,
    /// The store has notes beside its locks.
    pub(crate) notes: bool,
    /// What ends a lock that the store was not told to free.
    pub(crate) last_resort: &'static str,
    /// Whether a task works on this agenda.
    pub(crate) attended: AtomicBool,
    /// Wakes the task.
    pub(crate) bell: Notify,
    /// Wakes waiters when the shutdown begins.
    pub(crate) closing: Notify,
    /// Wakes the shutdown when the last claim is gone, and when the task is.
    quiet: Notify,
    observers: Vec<Arc<dyn Observer>>,
    roll: Roll,
    /// In nanoseconds: of any claim so far.
    longest_ttl: AtomicU64,
    ids: AtomicU64,
    state: Mutex<State>,
}

struct State {
    timers: BTreeMap<(Tick, u64), Arc<Held>>,
    chores: Vec<Chore>,
    rung: Vec<Arc<Held>>,
    /// By timers: of holds without a guard, what that would keep alive, until the task goes with its runtime.
    leaked: BTreeMap<u64, Option<Arc<Keeper>>>,
    /// When the task wakes up by itself.
    armed: Tick,
    /// No locker and no guard is left.
    orphaned: bool,
    /// When the shutdown began.
    draining_since: Option<Tick>,
    /// The shutdown is done.
    closed: bool,
}

/// What the task takes out of the agenda at once.
pub(crate) struct Work {
    pub(crate) due: Vec<Arc<Held>>,
    pub(crate) chores: Vec<Chore>,
    pub(crate) rung: Vec<Arc<Held>>,
    pub(crate) next: Tick,
    /// Nothing will come any more.
    pub(crate) last: bool,
}

impl Agenda {
    pub(crate) fn new(clock: Clock, descriptor: &Descriptor, observers: Vec<Arc<dyn Observer>>) -> Self {
        Self {
            clock,
            store: descriptor.name,
            cadence: descriptor.cadence,
            gates: Gates::new(descriptor),
            extends: descriptor.capabilities.extend,
            notes: descriptor.capabilities.notes,
            last_resort: descriptor.last_resort(),
            attended: AtomicBool::new(false),
            bell: Notify::new(),
            closing: Notify::new(),
            quiet: Notify::new(),
            observers,
            roll: Roll::new(),
            longest_ttl: AtomicU64::new(0),
            ids: AtomicU64::new(0),
            state: Mutex::new(State {
                timers: BTreeMap::new(),
                chores: Vec::new(),
                rung: Vec::new(),
                leaked: BTreeMap::new(),
                armed: Tick::NEVER,
                orphaned: false,
                draining_since: None,
                closed: false,
            }),
        }
    }

    pub(crate) fn observers(&self) -> &[Arc<dyn Observer>] {
        &self.observers
    }

    /// Never call this under the agenda's lock.
    pub(crate) fn observe<'a>(
        &self,
        name: &'a LockName,
        group: Option<&'a Arc<str>>,
        what: impl FnOnce() -> What<'a>,
    ) {
        if self.observers.is_empty() {
            return;
        }
        let event = Event { name, group, what: what() };
        for observer in &self.observers {
            // A panic of an observer hurts no lock and no other observer: the panic hook has told it.
            let _ = catch_unwind(AssertUnwindSafe(|| observer.on_event(&event)));
        }
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(SeqCst)
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    pub(crate) fn push(&self, chore: Chore) {
        self.wake_with(|state| state.chores.push(chore));
    }

    /// Puts a renewal in. One cheap insert; the task is woken only if it would sleep past it.
    pub(crate) fn schedule(&self, held: &Arc<Held>, due: Tick) {
        let wake = self.lock().insert(held, due);
        if wake {
            self.bell.notify_one();
        }
    }

    /// Moves a renewal, unless it is in flight.
    pub(crate) fn reschedule(&self, held: &Arc<Held>, due: Tick) {
        let wake = {
            let mut state = self.lock();
            state.remove(held).is_some() && state.insert(held, due)
        };
        if wake {
            self.bell.notify_one();
        }
    }

    /// Takes the renewal out for good; optionally leaves something to do, unless that was left before. Whoever
    /// waits for the outcome learns at once if nobody works here.
    pub(crate) fn retire(&self, held: &Arc<Held>, mut chore: Option<Chore>) {
        let dropped = {
            let mut state = self.lock();
            let unheard = match &mut chore {
                Some(Chore::Release(_, reply)) if !self.is_attended() => reply.take(),
                _ => None,
            };
            let again = held.retired.swap(true, Relaxed);
            let idle = if again { chore.take_if(|chore| !chore.is_awaited()) } else { None };
            let wake = chore.is_some();
            state.chores.extend(chore);
            let keeper = state.leaked.remove(&held.timer.id);
            (wake, unheard, idle, state.remove(held), keeper)
        };
        if dropped.0 {
            self.bell.notify_one();
        }
    }

    pub(crate) fn rung(&self, held: Arc<Held>) {
        self.wake_with(|state| state.rung.push(held));
    }

    /// Makes a renewal due now. One in flight sees `rung` when it ends.
    pub(crate) fn hasten(&self, held: &Arc<Held>) {
        self.reschedule(held, AT_ONCE);
    }

    /// The hold goes on without a guard and keeps its keeper at work; a shutdown that has begun ends it now. Nothing is
    /// kept if it is over already, and no keeper without a task: nobody would ever let go of it.
    pub(crate) fn leak(&self, held: &Arc<Held>, keeper: Arc<Keeper>) {
        let mut keeper = Some(keeper);
        // Not dropped under the lock: each may be the last one.
        let (_before, wake) = {
            let mut state = self.lock();
            let before = if held.retired.load(Relaxed) {
                None
            } else {
                let kept = keeper.take_if(|_| self.is_attended());
                state.leaked.insert(held.timer.id, kept).flatten()
            };
            let closing = state.draining_since.is_some();
            (before, closing && state.remove(held).is_some() && state.insert(held, Tick::NEVER))
        };
        if wake {
            self.bell.notify_one();
        }
    }

    /// When the shutdown ends this hold, if one has begun. Never call this under the agenda's lock.
    pub(crate) fn closing_end(&self, held: &Held) -> Tick {
        if self.is_draining() { self.lock().closing_end(held) } else { Tick::NEVER }
    }

    pub(crate) fn take_work(&self) -> Work {
        let now = self.clock.now();
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
        // Lowered by inserts, raised only once it has passed: short locks would wake the task each time.
        if state.armed <= now {
            state.armed = state.timers.first_key_value().map_or(Tick::NEVER, |(key, _)| key.0);
        }
        Work {
            due,
            chores: std::mem::take(&mut state.chores),
            rung: std::mem::take(&mut state.rung),
            next: state.armed,
            last: state.orphaned || (state.closed && self.live_claims() == 0),
        }
    }

    /// The last locker or guard has gone.
    pub(crate) fn orphan(&self) {
        self.wake_with(|state| state.orphaned = true);
    }

    /// Begins the shutdown: no new claims, no renewals. Each hold gets a last ttl.
    pub(crate) fn drain(&self) {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            state.draining_since.get_or_insert(now);
            let late = state.timers.iter().filter(|((due, _), held)| *due > state.closing_end(held));
            let late: Vec<_> = late.map(|(_, held)| Arc::clone(held)).collect();
            for held in late {
                state.insert(&held, Tick::NEVER);
            }
        }
        self.roll.drain();
        self.closing.notify_waiters();
        self.bell.notify_one();
    }

    /// Ends the shutdown. The task stays until then: whoever closes the backend may be dropped midway.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.bell.notify_one();
    }

    /// Waits until no claim lives. False if one outlives the shutdown by far: a future that nobody polls any more
    /// may hold it for ever.
    pub(crate) async fn until_quiet(self: &Arc<Self>) -> bool {
        let begun = self.lock().draining_since.unwrap_or_else(|| self.clock.now());
        // One ttl until the last guard is lost, and twice that to release what a silent store does not answer for.
        let end = begun.after(Duration::from_nanos(self.longest_ttl.load(Relaxed)) * 3);
        loop {
            let mut quiet = pin!(self.quiet.notified());
            quiet.as_mut().enable();
            if self.live_claims() == 0 {
                return true;
            }
            // The task may go with its runtime meanwhile, and what it had to do is what this waits for.
            let _ = Keeper::attend(self);
            tokio::select! {
                () = self.clock.sleep_until(end) => return self.live_claims() == 0,
                () = quiet => {}
            }
            // A runtime that is about to go drops a new task at once, which rings here again: it waits for this one to
            // pause, and so would this one for it.
            if self.live_claims() > 0 {
                self.clock.sleep_until(self.clock.now().after(Duration::from_millis(1))).await;
            }
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.roll.is_draining()
    }

    /// # Errors
    /// The locker was shut down.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_draining() { Err(self.closed()) } else { Ok(()) }
    }

    pub(crate) fn closed(&self) -> Error {
        Error::new(ErrorKind::Closed, "the locker was shut down").with_backend(self.store)
    }

    pub(crate) fn draining_since(&self) -> Option<Tick> {
        if self.is_draining() { self.lock().draining_since } else { None }
    }

    pub(crate) fn claim_born(&self, ttl: Duration) {
        self.roll.born();
        let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        if self.longest_ttl.load(Relaxed) < ttl {
            self.longest_ttl.fetch_max(ttl, Relaxed);
        }
    }

    pub(crate) fn claim_died(&self) {
        if self.roll.died() {
            self.quiet.notify_waiters();
            self.bell.notify_one();
        }
    }

    pub(crate) fn live_claims(&self) -> usize {
        self.roll.live()
    }

    /// The task is gone with its runtime. Timers stay for the next task; a hold without a deadline has nobody left
    /// who watches it, and would look held for ever. What was leaked stands by itself from here on: it must not keep
    /// alive, for ever, what nobody works on.
    pub(crate) fn abandon(&self) {
        let (unwatched, replies, hopeless, keepers): (Vec<_>, Vec<_>, Hopeless, Vec<_>) = {
            let mut state = self.lock();
            self.attended.store(false, SeqCst);
            let unwatched = state.timers.values().filter(|held| held.lease_end() == Tick::NEVER).cloned();
            let unwatched = unwatched.collect();
            let replies = state.chores.iter_mut().filter_map(|chore| match chore {
                Chore::Release(_, reply) => reply.take(),
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
        self.quiet.notify_waiters();
    }

    fn wake_with(&self, change: impl FnOnce(&mut State)) {
        let hopeless = {
            let mut state = self.lock();
            change(&mut state);
            state.hopeless(self.is_attended())
        };
        discard(hopeless);
        self.bell.notify_one();
    }

    /// Renewals scheduled, and things left to do.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let state = self.lock();
        (state.timers.len(), state.chores.len())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Hopeless = (Vec<Chore>, Vec<Arc<Held>>);

/// Drops the claims, even where a loss signal still knows the hold. Never call this under the agenda's lock.
fn discard((chores, holds): Hopeless) {
    for chore in chores {
        if let Chore::Release(held, _) = &chore {
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
    /// True if the task would sleep past `due`. After `retire` it does nothing; a shutdown ends each hold in time,
    /// whoever inserts what.
    fn insert(&mut self, held: &Arc<Held>, due: Tick) -> bool {
        if held.retired.load(Relaxed) {
            return false;
        }
        let end = self.closing_end(held);
        let due = if held.rung.is_rung() { AT_ONCE } else { due.min(held.deadline()).min(end).min(LAST) };
        self.remove(held);
        held.timer.due.store(due.nanos(), Relaxed);
        self.timers.insert((due, held.timer.id), Arc::clone(held));
        let earlier = due < self.armed;
        if earlier {
            self.armed = due;
        }
        earlier
    }

    /// When the shutdown ends this hold. Nobody will give back what was leaked.
    fn closing_end(&self, held: &Held) -> Tick {
        let Some(since) = self.draining_since else { return Tick::NEVER };
        if self.leaked.contains_key(&held.timer.id) { since } else { since.after(held.limits().ttl) }
    }

    /// What no task will ever do: nobody is left who could start one. Their leases end by themselves.
    fn hopeless(&mut self, attended: bool) -> Hopeless {
        if self.orphaned && !attended {
            let mut holds = std::mem::take(&mut self.rung);
            // Without a guard: of what was leaked.
            holds.extend(std::mem::take(&mut self.timers).into_values());
            holds.iter().for_each(|held| held.timer.due.store(Tick::NEVER.nanos(), Relaxed));
            (std::mem::take(&mut self.chores), holds)
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

impl fmt::Debug for Agenda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agenda")
            .field("store", &self.store)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
