//! The process gate: tasks of one locker that want the same name queue here, in order. Only the
//! first of them talks to the store.
//!
//! A holder keeps the gate closed. Its release opens the gate for the next task in line. Where the
//! store can transfer a lock in one request, the release hands the lock to that task instead. The
//! gate never blocks a task for ever:
//!
//! * While the store is in trouble, the gate is open for all tasks.
//! * Behind a long hold, the first in line joins the waiters in the store.
//! * A task that does not act on its turn is passed over.

use std::{
    collections::{HashMap, hash_map},
    fmt,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use super::{
    contender::Contender,
    name::{Gate, NameQueue},
    waiter::{Slot, Waiter},
};
use crate::{
    clock::{Clock, Tick},
    driver::held::{Held, Ticket},
    name::{Kind, LockName},
    spi::{Descriptor, Mode, QueuePolicy, Wakeable as _},
    token::FencingToken,
};

/// At most this many transfers in a row may overtake the waiters in the store (C12).
const MOST_TRANSFERS: u8 = 16;

/// How long a turn may take, beyond a request and the pause before the next request.
const LEEWAY: Duration = Duration::from_secs(1);

/// On a store that keeps no queue, a process that let others go first does not ask for this long.
/// The others only poll, so they would lose against a task that asks at once.
const STAND_BACK: Duration = Duration::from_millis(60);

/// The gates of one locker, by name. A name has no gate while no task holds or wants it.
pub(crate) struct Gates {
    names: Mutex<HashMap<LockName, Gate>>,
    tickets: AtomicU64,
    /// Whether the store can transfer grants.
    transfers: bool,
    fair: bool,
    /// Whether waiters wait in the store, so that a later request is behind them.
    lines_up: bool,
    /// How long a turn may be silent, in addition to its requests.
    silence: Duration,
}

/// The answer to a task that wants a lock.
pub(in crate::driver) enum Entry<'a> {
    /// The task may ask the store, beside any other task.
    Open,
    /// Other tasks of this process are before it; the number says how many.
    Queued(Arc<Waiter>, usize),
    /// Another task of this process has the lock now.
    Taken,
    Turn(Turn<'a>),
}

impl Gates {
    pub(in crate::driver) fn new(descriptor: &Descriptor) -> Self {
        let silence = descriptor.max_patience.saturating_add(descriptor.poll.max.saturating_mul(2));
        Self {
            names: Mutex::default(),
            tickets: AtomicU64::new(1),
            transfers: descriptor.capabilities.transfer,
            fair: descriptor.capabilities.fair,
            lines_up: descriptor.capabilities.fair || !descriptor.max_patience.is_zero(),
            silence: silence.saturating_add(LEEWAY),
        }
    }

    /// Lets a task in that asks once and does not wait.
    pub(in crate::driver) fn try_enter<'a>(&'a self, held: &'a Held) -> Entry<'a> {
        let now = held.locker().clock.now();
        let mut names = self.lock();
        let gate = match names.entry(held.name.clone()) {
            hash_map::Entry::Vacant(place) => return Entry::Turn(self.first(place, held, now)),
            hash_map::Entry::Occupied(place) => place.into_mut(),
        };
        let holder = gate.exclusive_holder();
        let is_taken = holder.as_ref().is_some_and(|holder| holder.stands_at(now));
        let entry = if gate.disagrees(held.mode) {
            Entry::Open
        } else if is_taken || (self.fair && gate.has_others_before(held.mode, now)) {
            Entry::Taken
        } else if gate.has_room(held.mode, now) {
            Entry::Turn(self.turn(gate.queue(), held, now))
        } else {
            Entry::Open
        };
        drop(names);
        drop(holder); // not under the lock: it may be the last reference
        entry
    }

    /// Lets a task in that is ready to wait.
    pub(in crate::driver) fn enter<'a>(
        &'a self,
        held: &'a Held,
        waiter: impl FnOnce(Ticket) -> Waiter,
    ) -> Entry<'a> {
        let now = held.locker().clock.now();
        let mut names = self.lock();
        let queue = match names.entry(held.name.clone()) {
            hash_map::Entry::Vacant(place) => return Entry::Turn(self.first(place, held, now)),
            hash_map::Entry::Occupied(place) => place.into_mut().queue(),
        };
        if queue.disagrees(held.mode) {
            return Entry::Open;
        }
        // Also in trouble, one task must have the turn: when it gets an answer, the gate closes
        // again.
        if queue.admits_new(held.mode, now) {
            return Entry::Turn(self.turn(queue, held, now));
        }
        if queue.store_failing {
            return Entry::Open;
        }
        let waiter = Arc::new(waiter(self.ticket()));
        let ahead = queue.queue(&waiter);
        Entry::Queued(waiter, ahead)
    }

    /// The turn of a task that is the first at this name.
    fn first<'a>(
        &'a self,
        place: hash_map::VacantEntry<'_, LockName, Gate>,
        held: &'a Held,
        now: Tick,
    ) -> Turn<'a> {
        if held.mode != Mode::Exclusive {
            return self.turn(place.insert(Gate::default()).queue(), held, now);
        }
        let ticket = self.ticket();
        place.insert(Gate::Alone(Contender::rival(ticket, now.after(self.silence_of(held)))));
        self.turn_of(held, ticket)
    }

    fn turn<'a>(&'a self, queue: &mut NameQueue, held: &'a Held, now: Tick) -> Turn<'a> {
        let ticket = self.ticket();
        queue.compete(Contender::rival(ticket, now.after(self.silence_of(held))), held.mode);
        self.turn_of(held, ticket)
    }

    pub(in crate::driver) fn turn_of<'a>(&'a self, held: &'a Held, ticket: Ticket) -> Turn<'a> {
        Turn { gates: self, held, ticket: Some(ticket) }
    }

    fn silence_of(&self, held: &Held) -> Duration {
        self.silence.saturating_add(held.limits().op_timeout)
    }

    fn ticket(&self) -> Ticket {
        NonZeroU64::new(self.tickets.fetch_add(1, Relaxed)).unwrap_or(NonZeroU64::MIN)
    }

    /// Ends a turn or a hold, and lets the next task in.
    pub(in crate::driver) fn leave(&self, name: &LockName, ticket: Ticket, clock: Clock) {
        let mut names = self.lock();
        let hash_map::Entry::Occupied(mut place) = names.entry(name.clone()) else { return };
        let (next, is_last) = match place.get_mut() {
            Gate::Alone(one) => (Vec::new(), one.ticket == ticket),
            Gate::Crowded(queue) => {
                queue.forget(ticket);
                let is_waited_for = queue.first().is_some();
                let next = if is_waited_for {
                    self.advance(queue, clock.now(), Duration::ZERO)
                } else {
                    Vec::new()
                };
                (next, queue.is_idle())
            }
        };
        if is_last {
            place.remove();
        }
        drop(names);
        wake(next);
    }

    /// Lets the next task in, if its turn has come because time passed.
    pub(in crate::driver) fn look(&self, name: &LockName, now: Tick) {
        let mut names = self.lock();
        let next = match names.get_mut(name) {
            Some(Gate::Crowded(queue)) => self.advance(queue, now, Duration::ZERO),
            _ => Vec::new(), // no task waits
        };
        drop(names);
        wake(next);
    }

    /// Removes from the line a waiter that no longer waits.
    pub(in crate::driver) fn forget(&self, waiter: &Waiter) {
        let mut names = self.lock();
        let Some(Gate::Crowded(queue)) = names.get_mut(waiter.name()) else { return };
        queue.leave(waiter);
        if queue.is_idle() {
            names.remove(waiter.name());
        }
    }

    /// An operator freed the grant with this token. Its holder looks at the store again, and no
    /// longer keeps other tasks out.
    pub(crate) fn freed(&self, name: &LockName, token: FencingToken) {
        let names = self.lock();
        let holders = names.get(name).map(Gate::holders).unwrap_or_default();
        drop(names);
        if let Some(held) = holders.into_iter().find(|held| held.token() == token) {
            held.pass_on();
            held.wake();
        }
    }

    /// How many tasks of this process wait here. Those that wait in the store do not count.
    pub(crate) fn waiting(&self, name: &LockName) -> usize {
        self.lock().get(name).map_or(0, Gate::waiting)
    }

    #[cfg(test)]
    pub(in crate::driver) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Gives a turn to the first tasks in line, as many as may have one.
    fn advance(&self, queue: &mut NameQueue, now: Tick, rest: Duration) -> Vec<Arc<Waiter>> {
        let mut called = Vec::new();
        while let Some(waiter) = queue.pop_admitted(now) {
            let ticket = self.ticket();
            if waiter.offer(Slot::Turn { ticket, rest }) {
                let stale_at = now.after(rest).after(self.silence_of(&waiter.held));
                queue.compete(Contender::rival(ticket, stale_at), waiter.held.mode);
                called.push(waiter);
            }
        }
        called
    }

    /// The store is in trouble: every task in line may ask the store itself.
    pub(in crate::driver) fn open(&self, name: &LockName) {
        let mut names = self.lock();
        let Some(gate) = names.get_mut(name) else { return };
        let queue = gate.queue();
        queue.store_failing = true;
        let mut let_in = Vec::new();
        while let Some(waiter) = queue.pop() {
            if waiter.offer(Slot::Open) {
                let_in.push(waiter);
            }
        }
        drop(names);
        wake(let_in);
    }

    /// The first in line, to whom this holder's release may transfer the lock.
    pub(in crate::driver) fn transfer(&self, held: &Held) -> Option<Transfer<'_>> {
        let ticket = held.ticket()?;
        let is_transferred = matches!(held.name.kind(), Kind::Election | Kind::Mutex);
        if !self.transfers || !is_transferred || held.locker().is_draining() {
            return None;
        }
        let mut names = self.lock();
        let Some(Gate::Crowded(queue)) = names.get_mut(&held.name) else { return None };
        let now = held.locker().clock.now();
        if !queue.is_held_by(ticket) || queue.has_rival_at(now) {
            return None;
        }
        let policy = if queue.streak < MOST_TRANSFERS {
            QueuePolicy::TransferFirst
        } else {
            QueuePolicy::QueueFirst
        };
        // The waiter stays in line. If the release is not polled any more, the waiter must get the
        // lock by itself.
        let waiter = queue.first().map(Arc::clone)?;
        let ticket = self.ticket();
        queue.compete(Contender::rival(ticket, now.after(self.silence_of(held))), held.mode);
        Some(Transfer { gates: self, waiter: Some(waiter), ticket, policy })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LockName, Gate>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the waiters. Never call this under the lock, because a task that it wakes may come here.
fn wake(waiters: impl IntoIterator<Item = Arc<Waiter>>) {
    for waiter in waiters {
        waiter.signal.notify_one();
    }
}

/// The right to compete in the store. When it is dropped, it passes to the next in line.
pub(in crate::driver) struct Turn<'a> {
    gates: &'a Gates,
    held: &'a Held,
    ticket: Option<Ticket>,
}

impl Turn<'_> {
    /// The task still acts, and the store answers.
    pub(in crate::driver) fn goes_on(&self) {
        let Some(ticket) = self.ticket else { return };
        let stale_at = self.held.locker().clock.now().after(self.gates.silence_of(self.held));
        if let Some(gate) = self.gates.lock().get_mut(&self.held.name) {
            gate.goes_on(ticket, stale_at);
        }
    }

    /// The store answers with errors, or not at all.
    pub(in crate::driver) fn meets_trouble(&self) {
        self.gates.open(&self.held.name);
    }

    /// The lock is granted: from now on its hold keeps the gate closed.
    pub(in crate::driver) fn wins(mut self, held: &Arc<Held>) {
        let Some(ticket) = self.ticket.take() else { return };
        let holder = Contender::holder(ticket, held.granted_at(), held);
        let mut names = self.gates.lock();
        // Set under the lock. A loss that comes now then finds the holder, or the drop of the hold
        // finds its ticket.
        held.set_ticket(ticket);
        let gate = names.entry(held.name.clone()).or_default();
        gate.won_by(holder, held.mode);
        let next = match gate {
            Gate::Crowded(queue) => self.gates.advance(queue, held.granted_at(), Duration::ZERO),
            Gate::Alone(_) => Vec::new(),
        };
        drop(names);
        wake(next);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.gates.leave(&self.held.name, ticket, self.held.locker().clock);
        }
    }
}

/// The transfer of the lock to the first in line. If it is dropped, that waiter waits on.
pub(in crate::driver) struct Transfer<'a> {
    gates: &'a Gates,
    waiter: Option<Arc<Waiter>>,
    ticket: Ticket,
    pub(in crate::driver) policy: QueuePolicy,
}

impl Transfer<'_> {
    pub(in crate::driver) fn waiter(&self) -> Option<&Arc<Waiter>> {
        self.waiter.as_ref()
    }

    /// Makes the lock the waiter's. Returns false if the waiter has left meanwhile.
    pub(in crate::driver) fn deliver(mut self) -> bool {
        let Some(waiter) = self.waiter.take() else { return false };
        let holder = Contender::holder(self.ticket, waiter.held.locker().clock.now(), &waiter.held);
        let mut names = self.gates.lock();
        let queue = names.entry(waiter.name().clone()).or_default().queue();
        waiter.held.set_ticket(self.ticket);
        queue.hold(holder, waiter.held.mode);
        queue.streak = queue.streak.saturating_add(1);
        queue.leave(&waiter);
        drop(names);
        let delivered = waiter.transfer();
        wake([waiter]);
        delivered
    }

    /// Others go first: after them, the waiter competes in the store.
    pub(in crate::driver) fn yields(mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        self.end(&waiter, true);
    }

    fn end(&self, waiter: &Arc<Waiter>, yielded: bool) {
        let name = waiter.name();
        let now = waiter.held.locker().clock.now();
        let mut names = self.gates.lock();
        let queue = names.entry(name.clone()).or_default().queue();
        queue.forget(self.ticket);
        queue.come_back(waiter);
        if yielded {
            queue.free();
        }
        let next = if queue.is_held() {
            Vec::new() // the hold that is being released lets it in when it ends
        } else {
            let rest = if yielded && !self.gates.lines_up { STAND_BACK } else { Duration::ZERO };
            self.gates.advance(queue, now, rest)
        };
        if queue.is_idle() {
            names.remove(name);
        }
        drop(names);
        wake(next);
    }
}

impl Drop for Transfer<'_> {
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
