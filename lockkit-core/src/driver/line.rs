//! The wait of one task in the line before a gate.

use std::{pin::pin, sync::Arc, time::Duration};

use super::{
    agenda::{Agenda, Cleanup},
    held::{Held, Ticket},
    keeper, pacing,
    queue::{Slot, Waiter},
};
use crate::{
    clock::{Tick, sleep},
    error::Result,
};

/// The result of the wait in line.
pub(super) enum Called {
    /// The task has the lock.
    Handed,
    /// The bound has passed.
    Late,
    /// The task had the lock, and did not look for too long.
    Missed,
    /// The task may ask the store, beside others.
    Open,
    /// The task may ask the store, after a rest.
    Turn(Ticket, Duration),
}

/// A place in line. Dropping it leaves the line, and gives back whatever was offered there.
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
            // Hears a shutdown that begins after this line, even before its first poll. tokio
            // promises that for `notify_waiters`.
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
            // The background task may have ended with its runtime, and this call may wait for its
            // work.
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

    /// Takes the lock that was transferred; false if it was given back meanwhile, or has ended.
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
                self.agenda.gates.leave(&held.name, ticket, held.locker().clock)
            }
            Slot::Handed => give_back_unclaimed(self.agenda, held),
            Slot::Gone | Slot::Open => {}
        }
    }
}

/// Gives back a lock that was handed to a waiter which did not take it, unless that was done
/// before.
pub(super) fn give_back_unclaimed(agenda: &Agenda, held: &Arc<Held>) {
    if held.claim_it() {
        take_back(agenda, held);
    }
}

fn take_back(agenda: &Agenda, held: &Arc<Held>) {
    held.end_unseen();
    agenda.retire(held, Some(Cleanup::Release(Arc::clone(held), None)));
}
