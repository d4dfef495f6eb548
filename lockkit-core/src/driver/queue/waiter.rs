//! One place in the line before a [gate](super::gate).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    clock::Tick,
    driver::{
        hold::{Hold, Ticket},
        live::LiveClaim,
    },
    name::LockName,
    spi::{ClaimSpec, Grant},
    token::{FencingToken, OwnerId},
};

/// One in line, as those see it that let it in.
pub(in crate::driver) struct Waiter {
    pub(in crate::driver) held: Arc<Hold>,
    pub(in crate::driver) place: Ticket,
    /// As whom it would hold the lock.
    spec: ClaimSpec,
    token_base: u64,
    slot: Mutex<Slot>,
    pub(in crate::driver) signal: Notify,
}

pub(in crate::driver) enum Slot {
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
    pub(in crate::driver) fn new(
        held: Arc<Hold>,
        place: Ticket,
        spec: ClaimSpec,
        token_base: u64,
    ) -> Self {
        Self {
            held,
            place,
            spec,
            token_base,
            slot: Mutex::new(Slot::Waiting),
            signal: Notify::new(),
        }
    }

    pub(in crate::driver) fn name(&self) -> &LockName {
        &self.held.name
    }

    pub(in crate::driver) fn is_waiting(&self) -> bool {
        matches!(*self.slot(), Slot::Waiting)
    }

    /// False if it has gone.
    pub(in crate::driver) fn offer(&self, offer: Slot) -> bool {
        let mut slot = self.slot();
        if !matches!(*slot, Slot::Waiting) {
            return false;
        }
        *slot = offer;
        true
    }

    /// The lock was transferred to it; false if it has gone, or asks the store by itself by now.
    pub(in crate::driver) fn promise(&self) -> bool {
        self.offer(Slot::Promised)
    }

    /// Keeps what was promised; false if it has gone.
    pub(in crate::driver) fn transfer(&self) -> bool {
        let mut slot = self.slot();
        let is_there = matches!(*slot, Slot::Promised);
        if is_there {
            *slot = Slot::Handed;
        }
        is_there
    }

    /// The promise is not kept.
    pub(in crate::driver) fn break_promise(&self) {
        let mut slot = self.slot();
        if matches!(*slot, Slot::Promised) {
            *slot = Slot::Waiting;
        }
    }

    /// What a transfer to it asks for. Its owner is a fresh one each time: one of which nobody
    /// knows whether it was applied must not touch what the waiter gets by itself later.
    pub(in crate::driver) fn successor(&self) -> ClaimSpec {
        let mut spec = self.spec.clone();
        spec.owner = OwnerId::random();
        spec
    }

    /// Makes a hold of a claim that was transferred, and tells when to look at it next. Gives the
    /// claim back if it can't be one.
    pub(in crate::driver) fn accept(
        &self,
        owner: OwnerId,
        claim: LiveClaim,
        asked: Tick,
        grant: Grant,
    ) -> Result<Tick, LiveClaim> {
        let held = &self.held;
        let now = held.locker().clock.now();
        let Some(token) = grant.token.get().checked_add(self.token_base) else { return Err(claim) };
        if held.extend(asked, grant.lease) <= now {
            return Err(claim);
        }
        let Ok(mut slot) = held.slot.try_lock() else { return Err(claim) };
        held.record(claim.attachment(), Some(grant.owner.unwrap_or(owner)));
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
