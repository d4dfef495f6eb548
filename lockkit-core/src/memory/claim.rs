//! Implements the claim of one owner on the embedded store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::shared::Shared;
use crate::{
    error::Result,
    spi::{
        Attempt, Claim, ClaimSpec, Note, Noted, QueuePolicy, Released, RenewalOutcome, Transferred,
        Wait,
    },
    token::FencingToken,
};

/// A claim on a [`Memory`](super::Memory). None of its calls ever waits, so no call can be dropped
/// half-way.
#[derive(Debug)]
pub(super) struct MemoryClaim {
    shared: Arc<Shared>,
    spec: ClaimSpec,
}

impl MemoryClaim {
    pub(super) fn new(shared: Arc<Shared>, spec: ClaimSpec) -> Self {
        Self { shared, spec }
    }
}

#[async_trait]
impl Claim for MemoryClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.shared.with(|store, now, wakes| store.attempt(&self.spec, wait, now, wakes))
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        Ok(self.shared.with(|store, now, wakes| match lease {
            Some(lease) => store.extend(&self.spec, lease, now, wakes),
            None => store.keep_alive(&self.spec, now, wakes),
        }))
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        Ok(self.shared.with(|store, now, _| store.raise_token(&self.spec, floor, now)))
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        Ok(self.shared.with(|store, now, _| store.write_note(&self.spec, note, now)))
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let transferred = self
            .shared
            .with(|store, now, wakes| store.transfer(&self.spec, to, policy, now, wakes));
        if let Transferred::Granted(_) = transferred {
            self.spec.clone_from(to);
        }
        Ok(transferred)
    }

    async fn release(&mut self) -> Result<Released> {
        Ok(self.shared.with(|store, now, wakes| store.release(&self.spec, now, wakes)))
    }
}
