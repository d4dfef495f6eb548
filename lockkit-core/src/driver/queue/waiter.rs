//! One place in the line before a [gate](super::gate).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    clock::Tick,
    driver::{
        held::{Held, Ticket},
        live::LiveClaim,
    },
    name::LockName,
    spi::{ClaimSpec, Grant},
    token::{FencingToken, OwnerId},
};

/// A task in line, as the gate sees it.
pub(in crate::driver) struct Waiter {
    pub(in crate::driver) held: Arc<Held>,
    pub(in crate::driver) place: Ticket,
    /// The claim as which the task would hold the lock.
    spec: ClaimSpec,
    slot: Mutex<Slot>,
    pub(in crate::driver) signal: Notify,
}

pub(in crate::driver) enum Slot {
    /// The waiter has left the line, or has what it waited for.
    Gone,
    /// The waiter has the lock.
    Handed,
    /// The waiter may ask the store, beside others.
    Open,
    /// A release is giving the lock to the waiter at this moment.
    Promised,
    /// The waiter may ask the store, after a rest.
    Turn {
        ticket: Ticket,
        rest: Duration,
    },
    Waiting,
}

impl Waiter {
    pub(in crate::driver) fn new(held: Arc<Held>, place: Ticket, spec: ClaimSpec) -> Self {
        Self { held, place, spec, slot: Mutex::new(Slot::Waiting), signal: Notify::new() }
    }

    pub(in crate::driver) fn name(&self) -> &LockName {
        &self.held.name
    }

    pub(in crate::driver) fn is_waiting(&self) -> bool {
        matches!(*self.slot(), Slot::Waiting)
    }

    /// Puts `offer` into the slot; false if the waiter does not wait any longer.
    pub(in crate::driver) fn offer(&self, offer: Slot) -> bool {
        let mut slot = self.slot();
        if !matches!(*slot, Slot::Waiting) {
            return false;
        }
        *slot = offer;
        true
    }

    /// Marks that the store has transferred the lock to the waiter. Returns false if the waiter has
    /// left, or now asks the store by itself.
    pub(in crate::driver) fn promise(&self) -> bool {
        self.offer(Slot::Promised)
    }

    /// Hands over the promised lock; false if the waiter has left.
    pub(in crate::driver) fn transfer(&self) -> bool {
        let mut slot = self.slot();
        let is_there = matches!(*slot, Slot::Promised);
        if is_there {
            *slot = Slot::Handed;
        }
        is_there
    }

    /// Takes the promise back, so that the waiter waits again.
    pub(in crate::driver) fn break_promise(&self) {
        let mut slot = self.slot();
        if matches!(*slot, Slot::Promised) {
            *slot = Slot::Waiting;
        }
    }

    /// The claim that a transfer to this waiter asks for. It has a fresh owner each time, because a
    /// transfer may have an unknown outcome. Such a transfer must not touch a lock that the waiter
    /// gets by itself later.
    pub(in crate::driver) fn successor(&self) -> ClaimSpec {
        let mut spec = self.spec.clone();
        spec.owner = OwnerId::random();
        spec
    }

    /// Makes a hold from a claim that was transferred, and returns when to look at it next. Returns
    /// the claim if it cannot become a hold.
    pub(in crate::driver) fn accept(
        &self,
        owner: OwnerId,
        claim: LiveClaim,
        asked: Tick,
        grant: Grant,
    ) -> Result<Tick, LiveClaim> {
        let held = &self.held;
        let now = held.locker().clock.now();
        let token_base = held.locker().token_base;
        let Some(token) = grant.token.get().checked_add(token_base) else { return Err(claim) };
        if held.extend(asked, grant.lease) <= now {
            return Err(claim);
        }
        let Ok(mut slot) = held.slot.try_lock() else { return Err(claim) };
        held.record(claim.attachment(), Some(grant.owner.unwrap_or(owner)), false);
        *slot = Some(claim);
        drop(slot);
        held.grant(FencingToken::new(token));
        held.leave_unclaimed();
        Ok(held.unclaimed_until().min(held.next_renewal(now)))
    }

    pub(in crate::driver) fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
