//! What is known of one name that somebody of this process has or wants.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use super::waiter::Waiter;
use crate::{
    clock::Tick,
    driver::hold::{Hold, Ticket},
};

/// Behind a longer hold the first in line joins those who wait in the store.
const LONG_HOLD: Duration = Duration::from_millis(250);

/// Who stands before the others. As many of these are kept as there are names, most of them with
/// one alone.
pub(super) enum Gate {
    Alone(Contender),
    Crowded(Box<NameQueue>),
}

/// One that has the lock, or competes for it in the store.
#[derive(Clone)]
pub(super) struct Contender {
    pub(super) ticket: Ticket,
    /// Since when it has the lock, or until when it counts as a rival without a sign of life.
    at: Tick,
    /// `None`: it competes.
    held: Option<Weak<Hold>>,
}

/// What only a name has that more than one wants.
#[derive(Default)]
pub(super) struct NameQueue {
    holder: Option<Contender>,
    rival: Option<Contender>,
    /// In order of their places.
    line: BTreeMap<Ticket, Arc<Waiter>>,
    /// Hand-overs since the store granted the lock.
    pub(super) streak: u8,
    /// The store answers by errors.
    pub(super) store_failing: bool,
}

impl Contender {
    pub(super) fn holder(ticket: Ticket, since: Tick, held: &Arc<Hold>) -> Self {
        Self { ticket, at: since, held: Some(Arc::downgrade(held)) }
    }

    pub(super) fn rival(ticket: Ticket, stale_at: Tick) -> Self {
        Self { ticket, at: stale_at, held: None }
    }

    fn competes_at(&self, now: Tick) -> bool {
        self.held.is_none() && self.at > now
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::Crowded(Box::default())
    }
}

impl Gate {
    /// Makes room for more than one.
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

    /// The one who has the lock. Never drop it under the lock of the gates: it may be the last
    /// reference.
    pub(super) fn holder(&self) -> Option<Arc<Hold>> {
        let holder = match self {
            Self::Alone(one) => Some(one),
            Self::Crowded(queue) => queue.holder.as_ref(),
        };
        holder?.held.as_ref()?.upgrade()
    }

    /// Whether others came before, where nobody may overtake (C12). In trouble everybody may see
    /// for himself.
    pub(super) fn has_others_before(&self, now: Tick) -> bool {
        match self {
            Self::Alone(one) => one.competes_at(now),
            Self::Crowded(queue) => {
                !queue.store_failing && (!queue.line.is_empty() || queue.has_rival_at(now))
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Self::Crowded(queue) if queue.is_idle())
    }

    pub(super) fn waiting(&self) -> usize {
        if let Self::Crowded(queue) = self { queue.line.len() } else { 0 }
    }

    /// The turn with this ticket has the lock now, from the store.
    pub(super) fn won_by(&mut self, holder: Contender) {
        match self {
            Self::Alone(one) if one.ticket == holder.ticket => *one = holder,
            _ => {
                let queue = self.queue();
                queue.hold(holder);
                (queue.streak, queue.store_failing) = (0, false);
            }
        }
    }

    /// The turn still acts, and the store answers.
    pub(super) fn goes_on(&mut self, ticket: Ticket, stale_at: Tick) {
        let (rival, store_failing) = match self {
            Self::Alone(one) => (Some(one), None),
            Self::Crowded(queue) => (queue.rival.as_mut(), Some(&mut queue.store_failing)),
        };
        let Some(rival) = rival.filter(|rival| rival.ticket == ticket) else { return };
        rival.at = stale_at;
        if let Some(store_failing) = store_failing {
            *store_failing = false;
        }
    }
}

impl NameQueue {
    fn of(one: Contender) -> Self {
        let mut queue = Self::default();
        let place = if one.held.is_some() { &mut queue.holder } else { &mut queue.rival };
        *place = Some(one);
        queue
    }

    pub(super) fn is_idle(&self) -> bool {
        self.holder.is_none() && self.rival.is_none() && self.line.is_empty()
    }

    pub(super) fn has_rival_at(&self, now: Tick) -> bool {
        self.rival.as_ref().is_some_and(|rival| rival.competes_at(now))
    }

    pub(super) fn is_held(&self) -> bool {
        self.holder.is_some()
    }

    pub(super) fn is_held_by(&self, ticket: Ticket) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.ticket == ticket)
    }

    /// Whether another one may compete in the store.
    pub(super) fn admits(&self, now: Tick) -> bool {
        !self.has_rival_at(now)
            && self.holder.as_ref().is_none_or(|holder| holder.at.after(LONG_HOLD) <= now)
    }

    pub(super) fn compete(&mut self, rival: Contender) {
        self.rival = Some(rival);
    }

    /// Whoever had it before has lost it.
    pub(super) fn hold(&mut self, holder: Contender) {
        self.forget(holder.ticket);
        self.holder = Some(holder);
    }

    /// Others than the holder go first.
    pub(super) fn free(&mut self) {
        self.holder = None;
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.holder.take_if(|holder| holder.ticket == ticket);
        self.rival.take_if(|rival| rival.ticket == ticket);
    }

    /// How many are before it.
    pub(super) fn queue(&mut self, waiter: &Arc<Waiter>) -> usize {
        let ahead = self.line.len();
        self.line.insert(waiter.place, Arc::clone(waiter));
        ahead
    }

    /// Has one wait on in its place. While it was promised the lock, it could be taken out of
    /// there.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gates of 100,000 held locks are a table of 131,072 of them, beside their names.
    #[test]
    fn a_name_with_one_alone_takes_three_words() {
        assert_eq!(size_of::<Gate>(), 24);
    }
}
