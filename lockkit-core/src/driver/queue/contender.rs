//! A task of this process that has a name, or competes for it in the store.

use std::sync::{Arc, Weak};

use crate::{
    clock::Tick,
    driver::held::{Held, Ticket},
};

/// A task that has the lock, or competes for it in the store.
#[derive(Clone)]
pub(super) struct Contender {
    pub(super) ticket: Ticket,
    /// Since when a holder has the lock. For a rival: when it stops to count without a sign of
    /// life.
    pub(super) at: Tick,
    /// `None` while it competes.
    held: Option<Weak<Held>>,
}

impl Contender {
    pub(super) fn holder(ticket: Ticket, since: Tick, held: &Arc<Held>) -> Self {
        Self { ticket, at: since, held: Some(Arc::downgrade(held)) }
    }

    pub(super) fn rival(ticket: Ticket, stale_at: Tick) -> Self {
        Self { ticket, at: stale_at, held: None }
    }

    pub(super) fn competes_at(&self, now: Tick) -> bool {
        self.held.is_none() && self.at > now
    }

    /// The next sign of life is due by `stale_at`.
    pub(super) fn competes_until(&mut self, stale_at: Tick) {
        self.at = stale_at;
    }

    /// The hold, while it lives. Never drop it under the lock of the gates, because it may be the
    /// last reference.
    pub(super) fn hold(&self) -> Option<Arc<Held>> {
        self.held.as_ref()?.upgrade()
    }

    pub(super) fn is_holder(&self) -> bool {
        self.held.is_some()
    }
}
