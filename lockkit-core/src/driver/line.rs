//! One place in the line before a [gate](super::gate).

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    agenda::Chore,
    gate::{Gates, Ticket},
    held::Held,
    keeper::Keeper,
    live::LiveClaim,
    renew::first_due,
};
use crate::{
    clock::{Tick, sleep},
    error::Result,
    name::LockName,
    spi::{ClaimSpec, Grant},
    token::{FencingToken, OwnerId},
};

/// How often one in line looks for a turn that came by the passing of time: less often, the more there are.
const LOOK: Duration = Duration::from_millis(250);
const LONGEST_LOOK: Duration = Duration::from_secs(4);
/// So many look as often as one alone.
const FEW: usize = 64;

/// A lock that was handed to a task which does not look at it is given back after so long.
pub(super) const UNCLAIMED: Duration = Duration::from_secs(1);

/// One in line, as those see it that let it in.
pub(super) struct Waiter {
    pub(super) held: Arc<Held>,
    pub(super) place: Ticket,
    /// As whom it would hold the lock.
    spec: ClaimSpec,
    token_base: u64,
    slot: Mutex<Slot>,
    pub(super) bell: Notify,
}

pub(super) enum Slot {
    /// It has left the line, or has what it waited for.
    Gone,
    /// It has the lock.
    Handed,
    /// It may ask the store, beside others.
    Open,
    /// It is being given the lock, in this very moment.
    Promised,
    /// It may ask the store, after a rest.
    Turn {
        ticket: Ticket,
        rest: Duration,
    },
    Waiting,
}

impl Waiter {
    pub(super) fn new(held: Arc<Held>, place: Ticket, spec: ClaimSpec, token_base: u64) -> Self {
        Self { held, place, spec, token_base, slot: Mutex::new(Slot::Waiting), bell: Notify::new() }
    }

    pub(super) fn name(&self) -> &LockName {
        &self.held.name
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.slot(), Slot::Waiting)
    }

    /// False if it has gone.
    pub(super) fn offer(&self, offer: Slot) -> bool {
        let mut slot = self.slot();
        if !matches!(*slot, Slot::Waiting) {
            return false;
        }
        *slot = offer;
        true
    }

    /// The lock was handed over to it; false if it has gone, or asks the store by itself by now.
    pub(super) fn promise(&self) -> bool {
        self.offer(Slot::Promised)
    }

    /// Keeps what was promised; false if it has gone.
    pub(super) fn hand_over(&self) -> bool {
        let mut slot = self.slot();
        let is_there = matches!(*slot, Slot::Promised);
        if is_there {
            *slot = Slot::Handed;
        }
        is_there
    }

    /// The promise is not kept.
    pub(super) fn break_promise(&self) {
        let mut slot = self.slot();
        if matches!(*slot, Slot::Promised) {
            *slot = Slot::Waiting;
        }
    }

    /// What a hand-over to it asks for. Its owner is a fresh one each time: one of which nobody knows whether it was
    /// applied must not touch what the waiter gets by itself later.
    pub(super) fn heir(&self) -> ClaimSpec {
        let mut spec = self.spec.clone();
        spec.owner = OwnerId::random();
        spec
    }

    /// Makes a hold of a claim that was handed over. Gives the claim back if it can't be one.
    pub(super) fn accept(
        &self,
        owner: OwnerId,
        claim: LiveClaim,
        asked: Tick,
        grant: Grant,
    ) -> Result<(), LiveClaim> {
        let (held, now) = (&self.held, self.held.agenda.clock.now());
        let Some(token) = grant.token.get().checked_add(self.token_base) else { return Err(claim) };
        if held.extend(asked, grant.lease) <= now {
            return Err(claim);
        }
        let Ok(mut slot) = held.slot.try_lock() else { return Err(claim) };
        held.record(claim.attachment(), Some(owner));
        *slot = Some(claim);
        drop(slot);
        held.grant(FencingToken::new(token));
        held.leave_unclaimed();
        held.agenda.schedule(held, held.unclaimed_until().min(first_due(held, now)));
        Ok(())
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    gates: &'a Gates,
    waiter: Arc<Waiter>,
    look: Duration,
}

impl<'a> InLine<'a> {
    pub(super) fn new(gates: &'a Gates, waiter: Arc<Waiter>, ahead: usize) -> Self {
        let crowds = u32::try_from(ahead / FEW).unwrap_or(u32::MAX);
        let look = LOOK.saturating_mul(crowds.saturating_add(1)).min(LONGEST_LOOK);
        Self { gates, waiter, look }
    }

    /// Waits to be let in.
    ///
    /// # Errors
    /// The locker was shut down, or has no runtime any more.
    ///
    /// # Cancel safety
    /// Cancel safe: the place is lost.
    pub(super) async fn wait(&self, keeper: &Keeper, stop: Tick) -> Result<Called> {
        let agenda = keeper.agenda();
        loop {
            // Hears what comes from here on, also before it is polled: tokio promises that for `notify_waiters`.
            let closing = pin!(agenda.closing.notified());
            agenda.check_open()?;
            match self.take() {
                Some(Called::Handed) if !self.receive() => return Ok(Called::Missed),
                Some(called) => return Ok(called),
                None => {}
            }
            let left = agenda.clock.now().until(stop);
            if left.is_zero() {
                return Ok(Called::Late);
            }
            tokio::select! {
                biased;
                () = self.waiter.bell.notified() => {}
                () = closing => {}
                _ = sleep(self.look.min(left)) => self.gates.look(self.waiter.name(), agenda.clock.now()),
            }
            // Its runtime may have gone meanwhile, and what it left to do may be what this call waits for.
            keeper.ensure()?;
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

    /// False if what was handed over was given back meanwhile, or has ended.
    fn receive(&self) -> bool {
        let held = &self.waiter.held;
        if !held.claim_it() {
            return false;
        }
        let stands = held.stands_at(held.agenda.clock.now());
        if !stands {
            take_back(held);
        }
        stands
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let slot = std::mem::replace(&mut *self.waiter.slot(), Slot::Gone);
        let held = &self.waiter.held;
        match slot {
            Slot::Promised | Slot::Waiting => self.gates.forget(&self.waiter),
            Slot::Turn { ticket, .. } => self.gates.leave(&held.name, ticket, held.agenda.clock.now()),
            Slot::Handed => give_back_unclaimed(held),
            Slot::Gone | Slot::Open => {}
        }
    }
}

/// Gives back what was handed to one that did not take it, unless that was done before.
pub(super) fn give_back_unclaimed(held: &Arc<Held>) {
    if held.claim_it() {
        take_back(held);
    }
}

fn take_back(held: &Arc<Held>) {
    held.end_unseen();
    held.agenda.retire(held, Some(Chore::Release(Arc::clone(held), None)));
}
