//! One of this process that has a name, or competes for it in the store.

use std::sync::{Arc, Weak};

use crate::{
    clock::Tick,
    driver::hold::{Hold, Ticket},
};

/// One that has the lock, or competes for it in the store.
#[derive(Clone)]
pub(super) struct Contender {
    pub(super) ticket: Ticket,
    /// Since when it has the lock, or until when it counts as a rival without a sign of life.
    pub(super) at: Tick,
    /// `None`: it competes.
    held: Option<Weak<Hold>>,
}

impl Contender {
    pub(super) fn holder(ticket: Ticket, since: Tick, held: &Arc<Hold>) -> Self {
        Self { ticket, at: since, held: Some(Arc::downgrade(held)) }
    }

    pub(super) fn rival(ticket: Ticket, stale_at: Tick) -> Self {
        Self { ticket, at: stale_at, held: None }
    }

    pub(super) fn competes_at(&self, now: Tick) -> bool {
        self.held.is_none() && self.at > now
    }

    /// It gives its next sign of life by then.
    pub(super) fn competes_until(&mut self, stale_at: Tick) {
        self.at = stale_at;
    }

    /// The hold that has it, while that lives. Never drop it under the lock of the gates: it may be
    /// the last reference.
    pub(super) fn hold(&self) -> Option<Arc<Hold>> {
        self.held.as_ref()?.upgrade()
    }

    pub(super) fn is_holder(&self) -> bool {
        self.held.is_some()
    }
}
