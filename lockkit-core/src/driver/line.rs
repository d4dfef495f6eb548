//! The wait of one task in the line before a gate.

use std::{pin::pin, sync::Arc, time::Duration};

use super::{
    agenda::{Agenda, Cleanup},
    hold::{Hold, Ticket},
    keeper, pacing,
    queue::{Slot, Waiter},
};
use crate::{
    clock::{Tick, sleep},
    error::Result,
};

/// What the wait in line ended with.
pub(super) enum Called {
    /// It has the lock.
    Handed,
    /// The bound has passed.
    Late,
    /// It had the lock, and did not look for too long.
    Missed,
    /// It may ask the store, beside others.
    Open,
    /// It may ask the store, after a rest.
    Turn(Ticket, Duration),
}

/// A place in line. Dropped, it is left, with all that was offered there.
pub(super) struct InLine<'a> {
    agenda: &'a Arc<Agenda>,
    waiter: Arc<Waiter>,
    look: Duration,
}

impl<'a> InLine<'a> {
    pub(super) fn new(agenda: &'a Arc<Agenda>, waiter: Arc<Waiter>, ahead: usize) -> Self {
        Self { agenda, waiter, look: pacing::look_in_line(ahead) }
    }

    /// Waits to be let in.
    ///
    /// # Errors
    /// The locker was shut down, or has no runtime any more.
    ///
    /// # Cancel safety
    /// Cancel safe: the place is lost.
    pub(super) async fn wait(&self, stop: Tick) -> Result<Called> {
        let locker = &self.agenda.locker;
        loop {
            // Hears what comes from here on, also before it is polled: tokio promises that for
            // `notify_waiters`.
            let closing = pin!(locker.closing.notified());
            locker.check_open()?;
            match self.take() {
                Some(Called::Handed) if !self.receive() => return Ok(Called::Missed),
                Some(called) => return Ok(called),
                None => {}
            }
            let left = locker.clock.now().until(stop);
            if left.is_zero() {
                return Ok(Called::Late);
            }
            tokio::select! {
                biased;
                () = self.waiter.signal.notified() => {}
                () = closing => {}
                _ = sleep(self.look.min(left)) => {
                    self.agenda.gates.look(self.waiter.name(), locker.clock.now());
                }
            }
            // Its runtime may have gone meanwhile, and what it left to do may be what this call
            // waits for.
            keeper::ensure(self.agenda)?;
        }
    }

    fn take(&self) -> Option<Called> {
        let mut slot = self.waiter.slot();
        let called = match *slot {
            Slot::Promised | Slot::Waiting => return None,
            Slot::Gone => Called::Missed,
            Slot::Handed => Called::Handed,
            Slot::Open => Called::Open,
            Slot::Turn { ticket, rest } => Called::Turn(ticket, rest),
        };
        *slot = Slot::Gone;
        Some(called)
    }

    /// False if what was transferred was given back meanwhile, or has ended.
    fn receive(&self) -> bool {
        let held = &self.waiter.held;
        if !held.claim_it() {
            return false;
        }
        let stands = held.stands_at(held.locker().clock.now());
        if !stands {
            take_back(self.agenda, held);
        }
        stands
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let slot = std::mem::replace(&mut *self.waiter.slot(), Slot::Gone);
        let held = &self.waiter.held;
        match slot {
            Slot::Promised | Slot::Waiting => self.agenda.gates.forget(&self.waiter),
            Slot::Turn { ticket, .. } => {
                self.agenda.gates.leave(&held.name, ticket, held.locker().clock.now())
            }
            Slot::Handed => give_back_unclaimed(self.agenda, held),
            Slot::Gone | Slot::Open => {}
        }
    }
}

/// Gives back what was handed to one that did not take it, unless that was done before.
pub(super) fn give_back_unclaimed(agenda: &Agenda, held: &Arc<Hold>) {
    if held.claim_it() {
        take_back(agenda, held);
    }
}

fn take_back(agenda: &Agenda, held: &Arc<Hold>) {
    held.end_unseen();
    agenda.retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
}
