//! The process gate: tasks of one locker that want the same name queue here, in order, and only the first of them talks
//! to the store.
//!
//! A holder keeps the gate closed; its release opens it for the next in line, or hands the lock over to it where the
//! store can do that in one request. The gate never stands in the way for good: while the store is in trouble it is open
//! for all, behind a long hold the first in line joins those who wait in the store, and one that does not act on its
//! turn is passed over.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    held::Held,
    line::{InLine, Slot, Waiter},
};
use crate::{
    clock::Tick,
    name::LockName,
    spi::{Descriptor, Outsiders, Ring as _},
    token::FencingToken,
};

/// So many hand-overs in a row may overtake those who wait in the store (C12).
const MOST_HAND_OVERS: u8 = 16;

/// Behind a longer hold the first in line joins those who wait in the store.
const LONG_HOLD: Duration = Duration::from_millis(250);

/// What a turn may take beyond a request and a pause before the next one.
const LEEWAY: Duration = Duration::from_secs(1);

/// Where a store keeps no queue, a process that let others go first stays away for so long: their polls are no match for
/// one who asks at once.
const STAND_BACK: Duration = Duration::from_millis(60);

/// The gates of one locker, by name. A name that nobody holds or wants has none.
pub(crate) struct Gates {
    names: Mutex<HashMap<LockName, Gate>>,
    tickets: AtomicU64,
    /// Grants can be handed over.
    reissues: bool,
    fair: bool,
    /// Those who wait do so in the store: whoever asks later is behind them.
    lines_up: bool,
    /// How long a turn may be silent, beside its requests.
    silence: Duration,
}

/// Names one turn or one hold.
pub(super) type Ticket = NonZeroU64;

#[derive(Default)]
struct Gate {
    holder: Option<Holder>,
    rival: Option<Rival>,
    crowd: Option<Box<Crowd>>,
}

/// The one of this process that has the lock.
struct Holder {
    ticket: Ticket,
    since: Tick,
    held: Weak<Held>,
}

/// The one of this process that competes in the store.
struct Rival {
    ticket: Ticket,
    /// It does not act any more if it was silent until then.
    stale_at: Tick,
}

/// What only a name has that more than one wants.
#[derive(Default)]
struct Crowd {
    queue: VecDeque<Arc<Waiter>>,
    /// Hand-overs since the store granted the lock.
    streak: u8,
    /// The store answers by errors.
    troubled: bool,
}

/// The answer to one who wants a lock.
pub(super) enum Entry<'a> {
    /// It may ask the store, beside whoever does.
    Open,
    /// Others of this process are before it.
    Queued(InLine<'a>),
    /// Another of this process has it now.
    Taken,
    Turn(Turn<'a>),
}

impl Gates {
    pub(super) fn new(descriptor: &Descriptor) -> Self {
        Self {
            names: Mutex::default(),
            tickets: AtomicU64::new(1),
            reissues: descriptor.capabilities.reissue,
            fair: descriptor.capabilities.fair,
            lines_up: descriptor.capabilities.fair || !descriptor.max_patience.is_zero(),
            silence: descriptor.max_patience + descriptor.poll.max * 2 + LEEWAY,
        }
    }

    /// Lets one in that wants to ask once, and not to wait.
    pub(super) fn try_enter<'a>(&'a self, held: &'a Held) -> Entry<'a> {
        let now = held.agenda.clock.now();
        let mut names = self.lock();
        let gate = names.entry(held.name.clone()).or_default();
        let taken = gate.holder.as_ref().and_then(|holder| holder.held.upgrade());
        let is_taken = taken.as_ref().is_some_and(|holder| holder.stands_at(now));
        let entry = if is_taken || (self.fair && gate.has_others_before(now)) {
            Entry::Taken
        } else if gate.is_idle() {
            Entry::Turn(self.turn(gate, held, now))
        } else {
            Entry::Open
        };
        drop(names);
        drop(taken); // not under the lock: it may be the last reference
        entry
    }

    /// Lets one in that is ready to wait.
    pub(super) fn enter<'a>(&'a self, held: &'a Held, waiter: impl FnOnce() -> Waiter) -> Entry<'a> {
        let now = held.agenda.clock.now();
        let mut names = self.lock();
        let gate = names.entry(held.name.clone()).or_default();
        if gate.is_idle() {
            return Entry::Turn(self.turn(gate, held, now));
        }
        if gate.is_troubled() {
            // Somebody must have the turn: by its luck the gate gets over it.
            return if gate.admits(now) { Entry::Turn(self.turn(gate, held, now)) } else { Entry::Open };
        }
        let crowd = gate.crowd.get_or_insert_default();
        let (waiter, ahead) = (Arc::new(waiter()), crowd.queue.len());
        crowd.queue.push_back(Arc::clone(&waiter));
        Entry::Queued(InLine::new(self, waiter, ahead))
    }

    fn turn<'a>(&'a self, gate: &mut Gate, held: &'a Held, now: Tick) -> Turn<'a> {
        let ticket = self.ticket();
        gate.rival = Some(Rival { ticket, stale_at: now.after(self.silence_of(held)) });
        self.turn_of(held, ticket)
    }

    pub(super) fn turn_of<'a>(&'a self, held: &'a Held, ticket: Ticket) -> Turn<'a> {
        Turn { gates: self, held, ticket: Some(ticket) }
    }

    fn silence_of(&self, held: &Held) -> Duration {
        self.silence + held.limits().op_timeout
    }

    fn ticket(&self) -> Ticket {
        NonZeroU64::new(self.tickets.fetch_add(1, Relaxed)).unwrap_or(NonZeroU64::MIN)
    }

    /// Ends a turn or a hold: the next one comes in.
    pub(super) fn leave(&self, name: &LockName, ticket: Ticket, now: Tick) {
        let mut names = self.lock();
        let Some(gate) = names.get_mut(name) else { return };
        gate.forget(ticket);
        let next = self.advance(gate, now, Duration::ZERO);
        if next.is_none() && gate.is_idle() {
            names.remove(name);
        }
        drop(names);
        ring(next);
    }

    /// Has the next one come in whose turn it is by the passing of time.
    pub(super) fn look(&self, name: &LockName, now: Tick) {
        let mut names = self.lock();
        let next = names.get_mut(name).and_then(|gate| self.advance(gate, now, Duration::ZERO));
        drop(names);
        ring(next);
    }

    /// Takes one out of the line that has gone.
    pub(super) fn forget(&self, waiter: &Arc<Waiter>) {
        let mut names = self.lock();
        let Some(gate) = names.get_mut(waiter.name()) else { return };
        if let Some(crowd) = &mut gate.crowd {
            crowd.leave(waiter);
        }
        if gate.is_idle() {
            names.remove(waiter.name());
        }
    }

    /// An operator freed the grant with this token: whoever had it is asked to look, and keeps nobody out.
    pub(crate) fn freed(&self, name: &LockName, token: FencingToken) {
        let names = self.lock();
        let holder = names.get(name).and_then(|gate| gate.holder.as_ref()?.held.upgrade());
        drop(names);
        if let Some(held) = holder.filter(|held| held.token() == token) {
            held.pass_on();
            held.ring();
        }
    }

    /// How many of this process wait here, beside those who wait in the store.
    pub(crate) fn waiting(&self, name: &LockName) -> usize {
        let names = self.lock();
        names.get(name).and_then(|gate| gate.crowd.as_ref()).map_or(0, |crowd| crowd.queue.len())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Gives the turn to the first in line, if there may be one.
    fn advance(&self, gate: &mut Gate, now: Tick, rest: Duration) -> Option<Arc<Waiter>> {
        if !gate.admits(now) {
            return None;
        }
        let crowd = gate.crowd.as_mut()?;
        while let Some(waiter) = crowd.queue.pop_front() {
            let ticket = self.ticket();
            if waiter.offer(Slot::Turn { ticket, rest }) {
                gate.rival =
                    Some(Rival { ticket, stale_at: now.after(rest + self.silence_of(&waiter.held)) });
                return Some(waiter);
            }
        }
        None
    }

    /// The store is in trouble: everybody may see for himself.
    pub(super) fn open(&self, name: &LockName) {
        let mut names = self.lock();
        let Some(gate) = names.get_mut(name) else { return };
        let crowd = gate.crowd.get_or_insert_default();
        crowd.troubled = true;
        let let_in: Vec<_> = crowd.queue.drain(..).filter(|waiter| waiter.offer(Slot::Open)).collect();
        drop(names);
        ring(let_in);
    }

    /// The next in line, to whom this holder's release may hand over.
    pub(super) fn succession(&self, held: &Held) -> Option<Succession<'_>> {
        let ticket = held.ticket()?;
        if !self.reissues || held.agenda.is_draining() {
            return None;
        }
        let now = held.agenda.clock.now();
        let mut names = self.lock();
        let gate = names.get_mut(&held.name)?;
        let is_holder = gate.holder.as_ref().is_some_and(|holder| holder.ticket == ticket);
        if !is_holder || gate.rival.as_ref().is_some_and(|rival| rival.stale_at > now) {
            return None;
        }
        let crowd = gate.crowd.as_mut()?;
        let outsiders = if crowd.streak < MOST_HAND_OVERS { Outsiders::Wait } else { Outsiders::First };
        while crowd.queue.front().is_some_and(|waiter| !waiter.is_waiting()) {
            crowd.queue.pop_front();
        }
        // It stays in line: nobody may poll this release any more, and then it must get the lock by itself.
        let waiter = crowd.queue.front().map(Arc::clone)?;
        let ticket = self.ticket();
        gate.rival = Some(Rival { ticket, stale_at: now.after(self.silence_of(held)) });
        Some(Succession { gates: self, waiter: Some(waiter), ticket, outsiders })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, Gate>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Never under the lock: what it wakes may come here.
fn ring(waiters: impl IntoIterator<Item = Arc<Waiter>>) {
    for waiter in waiters {
        waiter.bell.notify_one();
    }
}

impl Crowd {
    /// Has one wait on at the head of the line. While it was promised the lock, it could be taken out of there.
    fn come_back(&mut self, waiter: &Arc<Waiter>) {
        let is_there = self.queue.iter().any(|other| Arc::ptr_eq(other, waiter));
        if !is_there && waiter.is_waiting() {
            self.queue.push_front(Arc::clone(waiter));
        }
    }

    fn leave(&mut self, waiter: &Arc<Waiter>) {
        if self.queue.front().is_some_and(|first| Arc::ptr_eq(first, waiter)) {
            self.queue.pop_front();
        } else {
            self.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        }
    }
}

impl Gate {
    fn is_troubled(&self) -> bool {
        self.crowd.as_ref().is_some_and(|crowd| crowd.troubled)
    }

    /// Whether others came before, where nobody may overtake (C12). In trouble everybody may see for himself.
    fn has_others_before(&self, now: Tick) -> bool {
        let somebody_waits = self.crowd.as_ref().is_some_and(|crowd| !crowd.queue.is_empty());
        let somebody_competes = self.rival.as_ref().is_some_and(|rival| rival.stale_at > now);
        !self.is_troubled() && (somebody_waits || somebody_competes)
    }

    fn is_idle(&self) -> bool {
        let nobody_waits = self.crowd.as_ref().is_none_or(|crowd| crowd.queue.is_empty());
        self.holder.is_none() && self.rival.is_none() && nobody_waits
    }

    /// Whether another one may compete in the store.
    fn admits(&self, now: Tick) -> bool {
        let nobody_competes = self.rival.as_ref().is_none_or(|rival| rival.stale_at <= now);
        nobody_competes && self.holder.as_ref().is_none_or(|holder| holder.since.after(LONG_HOLD) <= now)
    }

    fn forget(&mut self, ticket: Ticket) {
        self.holder.take_if(|holder| holder.ticket == ticket);
        self.rival.take_if(|rival| rival.ticket == ticket);
    }
}

/// The right to compete in the store. Dropped, it passes to the next in line.
pub(super) struct Turn<'a> {
    gates: &'a Gates,
    held: &'a Held,
    ticket: Option<Ticket>,
}

impl Turn<'_> {
    /// It still acts, and the store answers.
    pub(super) fn goes_on(&self) {
        let now = self.held.agenda.clock.now();
        let mut names = self.gates.lock();
        let Some(gate) = names.get_mut(&self.held.name) else { return };
        if let Some(rival) = gate.rival.as_mut().filter(|rival| Some(rival.ticket) == self.ticket) {
            rival.stale_at = now.after(self.gates.silence_of(self.held));
            if let Some(crowd) = &mut gate.crowd {
                crowd.troubled = false;
            }
        }
    }

    /// The store answers by errors, or not at all.
    pub(super) fn meets_trouble(&self) {
        self.gates.open(&self.held.name);
    }

    /// The lock is granted: from now on its hold keeps the gate closed.
    pub(super) fn wins(mut self, held: &Arc<Held>) {
        let Some(ticket) = self.ticket.take() else { return };
        let now = held.agenda.clock.now();
        let mut names = self.gates.lock();
        let gate = names.entry(held.name.clone()).or_default();
        gate.forget(ticket);
        // Under the lock: a loss that comes now finds the holder, or its ticket is found by the drop of the hold.
        held.set_ticket(ticket);
        gate.holder = Some(Holder { ticket, since: now, held: Arc::downgrade(held) });
        if let Some(crowd) = &mut gate.crowd {
            (crowd.streak, crowd.troubled) = (0, false);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.gates.leave(&self.held.name, ticket, self.held.agenda.clock.now());
        }
    }
}

/// The first in line, to whom the lock is being handed over. Dropped, it waits on.
pub(super) struct Succession<'a> {
    gates: &'a Gates,
    waiter: Option<Arc<Waiter>>,
    ticket: Ticket,
    pub(super) outsiders: Outsiders,
}

impl Succession<'_> {
    pub(super) fn waiter(&self) -> Option<&Arc<Waiter>> {
        self.waiter.as_ref()
    }

    /// The lock is the waiter's now; false if that has gone meanwhile.
    pub(super) fn deliver(mut self) -> bool {
        let Some(waiter) = self.waiter.take() else { return false };
        let now = waiter.held.agenda.clock.now();
        let mut names = self.gates.lock();
        let gate = names.entry(waiter.name().clone()).or_default();
        gate.forget(self.ticket);
        waiter.held.set_ticket(self.ticket);
        let held = Arc::downgrade(&waiter.held);
        gate.holder = Some(Holder { ticket: self.ticket, since: now, held });
        let crowd = gate.crowd.get_or_insert_default();
        crowd.streak = crowd.streak.saturating_add(1);
        crowd.leave(&waiter);
        drop(names);
        let delivered = waiter.hand_over();
        ring([waiter]);
        delivered
    }

    /// Others went first: the waiter competes in the store now, after them.
    pub(super) fn yields(mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        self.end(&waiter, true);
    }

    fn end(&self, waiter: &Arc<Waiter>, yielded: bool) {
        let (name, now) = (waiter.name(), waiter.held.agenda.clock.now());
        let mut names = self.gates.lock();
        let gate = names.entry(name.clone()).or_default();
        gate.forget(self.ticket);
        gate.crowd.get_or_insert_default().come_back(waiter);
        let next = if yielded {
            let rest = if self.gates.lines_up { Duration::ZERO } else { STAND_BACK };
            gate.holder = None;
            self.gates.advance(gate, now, rest)
        } else {
            None // the hold that is being released lets it in when it ends
        };
        if next.is_none() && gate.is_idle() {
            names.remove(name);
        }
        drop(names);
        ring(next);
    }
}

impl Drop for Succession<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.waiter.take() {
            self.end(&waiter, false);
        }
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gates").finish_non_exhaustive()
    }
}
