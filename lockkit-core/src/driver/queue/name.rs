//! The state of one name that a task of this process has or wants.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{contender::Contender, sharing::Peers, waiter::Waiter};
use crate::{
    clock::Tick,
    driver::held::{Held, Ticket},
    spi::Mode,
};

/// Behind a hold that is longer than this, the first in line joins the waiters in the store.
const LONG_HOLD: Duration = Duration::from_millis(250);

/// The contenders of one name. There are as many of these as names, and most names have only one
/// contender.
pub(super) enum Gate {
    /// One task has the name for itself, or competes for it.
    Alone(Contender),
    Crowded(Box<NameQueue>),
}

/// The state of a name that more than one task wants, or can have.
#[derive(Default)]
pub(super) struct NameQueue {
    holders: Peers,
    /// The tasks that compete in the store.
    rivals: Peers,
    /// The waiters, in the order of their places.
    line: BTreeMap<Ticket, Arc<Waiter>>,
    /// Transfers since the store granted the lock.
    pub(super) streak: u8,
    /// The store answers with errors.
    pub(super) store_failing: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Self::Crowded(Box::default())
    }
}

impl Gate {
    /// Makes room for more than one task.
    pub(super) fn queue(&mut self) -> &mut NameQueue {
        match self {
            Self::Crowded(queue) => queue,
            Self::Alone(one) => {
                let one = one.clone();
                *self = Self::Crowded(Box::new(NameQueue::of(one)));
                self.queue()
            }
        }
    }

    /// The holds that have the lock. Never drop them under the lock of the gates, because each may
    /// be the last reference.
    pub(super) fn holders(&self) -> Vec<Arc<Held>> {
        match self {
            Self::Alone(one) => one.hold().into_iter().collect(),
            Self::Crowded(queue) => {
                queue.holders.contenders().filter_map(Contender::hold).collect()
            }
        }
    }

    /// The hold that has the lock exclusively. Never drop it under the lock of the gates either.
    pub(super) fn exclusive_holder(&self) -> Option<Arc<Held>> {
        match self {
            Self::Alone(one) => one.hold(),
            Self::Crowded(queue) if !queue.holders.usage().is_exclusive() => None,
            Self::Crowded(queue) => queue.holders.contenders().next()?.hold(),
        }
    }

    /// Whether others are before a task of this mode, on a store where no task may overtake (C12).
    /// While the store is in trouble, every task may ask it, so the answer is false.
    pub(super) fn has_others_before(&mut self, mode: Mode, now: Tick) -> bool {
        match self {
            Self::Alone(one) => one.competes_at(now),
            Self::Crowded(queue) => {
                !queue.store_failing && (!queue.line.is_empty() || queue.has_rival_of(mode, now))
            }
        }
    }

    /// Whether `mode` has another limit than the others. Then only the store can say which is
    /// right.
    pub(super) fn disagrees(&self, mode: Mode) -> bool {
        matches!(self, Self::Crowded(queue) if queue.disagrees(mode))
    }

    /// Whether `mode` has room beside all tasks that have the lock or compete for it.
    pub(super) fn has_room(&mut self, mode: Mode, now: Tick) -> bool {
        match self {
            Self::Alone(_) => false,
            Self::Crowded(queue) => queue.has_room(mode, now),
        }
    }

    pub(super) fn waiting(&self) -> usize {
        if let Self::Crowded(queue) = self { queue.line.len() } else { 0 }
    }

    /// The turn with this ticket got the lock from the store.
    pub(super) fn won_by(&mut self, holder: Contender, mode: Mode) {
        match self {
            Self::Alone(one) if one.ticket == holder.ticket => *one = holder,
            _ => {
                let queue = self.queue();
                queue.hold(holder, mode);
                (queue.streak, queue.store_failing) = (0, false);
            }
        }
    }

    /// The turn still acts, and the store has refused it for now.
    pub(super) fn goes_on(&mut self, ticket: Ticket, stale_at: Tick) {
        match self {
            Self::Alone(one) if one.ticket == ticket => one.competes_until(stale_at),
            Self::Alone(_) => {}
            Self::Crowded(queue) => queue.goes_on(ticket, stale_at),
        }
    }
}

impl NameQueue {
    fn of(one: Contender) -> Self {
        let mut queue = Self::default();
        let place = if one.is_holder() { &mut queue.holders } else { &mut queue.rivals };
        place.insert(one, Mode::Exclusive);
        queue
    }

    pub(super) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.rivals.is_empty() && self.line.is_empty()
    }

    pub(super) fn has_rival_at(&self, now: Tick) -> bool {
        self.rivals.contenders().any(|rival| rival.competes_at(now))
    }

    /// Whether a rival is in the way of this mode, or waits in the store. Stale rivals are removed
    /// only where they matter.
    ///
    /// A rival that waits for more permits is not in the way. Where the store keeps an order, the
    /// store lets no request pass that rival. Where it keeps none, that rival may wait for ever.
    fn has_rival_of(&mut self, mode: Mode, now: Tick) -> bool {
        if !self.rivals.has_waiting() && self.rivals.usage().has_room(mode) {
            return false;
        }
        self.rivals.drop_stale(now);
        self.rivals.has_waiting_before(mode) || !self.rivals.usage_before(mode).has_room(mode)
    }

    /// Whether `mode` has room beside all tasks that have the lock or compete for it.
    fn has_room(&mut self, mode: Mode, now: Tick) -> bool {
        !self.has_rival_of(mode, now)
            && self.holders.usage().and(self.rivals.usage_before(mode)).has_room(mode)
    }

    /// Whether `mode` has another limit than the others.
    pub(super) fn disagrees(&self, mode: Mode) -> bool {
        self.holders.usage().and(self.rivals.usage()).disagrees(mode)
    }

    pub(super) fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }

    pub(super) fn is_held_by(&self, ticket: Ticket) -> bool {
        self.holders.has(ticket)
    }

    /// Whether one more task may compete in the store.
    pub(super) fn admits(&mut self, mode: Mode, now: Tick) -> bool {
        if self.has_room(mode, now) {
            return true;
        }
        let outlasts = |holder: &Contender| holder.at.after(LONG_HOLD) <= now;
        !self.has_rival_at(now) && self.holders.contenders().all(outlasts)
    }

    /// As [`admits`](Self::admits), for a task that comes now.
    pub(super) fn admits_new(&mut self, mode: Mode, now: Tick) -> bool {
        self.line.is_empty() && self.admits(mode, now)
    }

    pub(super) fn compete(&mut self, contender: Contender, mode: Mode) {
        self.rivals.insert(contender, mode);
    }

    fn goes_on(&mut self, ticket: Ticket, stale_at: Tick) {
        if self.rivals.wait(ticket, stale_at) {
            self.store_failing = false;
        }
    }

    /// Makes the contender a holder. An earlier holder that cannot have the name beside it has lost
    /// it.
    pub(super) fn hold(&mut self, contender: Contender, mode: Mode) {
        self.forget(contender.ticket);
        self.holders.retain_beside(mode);
        self.holders.insert(contender, mode);
    }

    /// Forgets the holders: the lock was freed, and others go first.
    pub(super) fn free(&mut self) {
        self.holders = Peers::default();
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.holders.remove(ticket);
        self.rivals.remove(ticket);
    }

    /// Puts a waiter in line, and returns how many are before it.
    pub(super) fn queue(&mut self, waiter: &Arc<Waiter>) -> usize {
        let ahead = self.line.len();
        self.line.insert(waiter.place, Arc::clone(waiter));
        ahead
    }

    /// Lets a waiter wait in its place again. While it was promised the lock, `first` may have
    /// removed it.
    pub(super) fn come_back(&mut self, waiter: &Arc<Waiter>) {
        if waiter.is_waiting() {
            self.line.insert(waiter.place, Arc::clone(waiter));
        }
    }

    pub(super) fn leave(&mut self, waiter: &Waiter) {
        self.line.remove(&waiter.place);
    }

    /// The first in line. It stays there.
    pub(super) fn first(&mut self) -> Option<&Arc<Waiter>> {
        while self.line.first_key_value().is_some_and(|(_, waiter)| !waiter.is_waiting()) {
            self.line.pop_first();
        }
        self.line.first_key_value().map(|(_, waiter)| waiter)
    }

    pub(super) fn pop(&mut self) -> Option<Arc<Waiter>> {
        self.line.pop_first().map(|(_, waiter)| waiter)
    }

    /// Takes the first in line, if it may compete in the store.
    pub(super) fn pop_admitted(&mut self, now: Tick) -> Option<Arc<Waiter>> {
        let mode = self.first()?.held.mode;
        if self.admits(mode, now) { self.pop() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gates of 100,000 held locks are a table of 131,072 of them, beside their names.
    #[test]
    fn a_name_with_one_contender_takes_three_words() {
        assert_eq!(size_of::<Gate>(), 24);
    }
}
