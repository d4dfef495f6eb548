//! One owner's dealings with the embedded store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::shared::Shared;
use crate::{
    error::Result,
    spi::{Attempt, Claim, ClaimSpec, Note, Noted, Outsiders, Pulse, Reissued, Released, Wait},
    token::FencingToken,
};

/// A claim on a [`Memory`](super::Memory). No call of it ever waits, so none can be dropped
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

    async fn renew(&mut self, lease: Option<Duration>) -> Result<Pulse> {
        Ok(self.shared.with(|store, now, wakes| match lease {
            Some(lease) => store.extend(&self.spec, lease, now, wakes),
            None => store.keep_alive(&self.spec, now, wakes),
        }))
    }

    async fn raise_fence(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        Ok(self.shared.with(|store, now, _| store.raise_fence(&self.spec, floor, now)))
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        Ok(self.shared.with(|store, now, _| store.write_note(&self.spec, note, now)))
    }

    async fn reissue(&mut self, to: &ClaimSpec, outsiders: Outsiders) -> Result<Reissued> {
        let reissued = self
            .shared
            .with(|store, now, wakes| store.reissue(&self.spec, to, outsiders, now, wakes));
        if let Reissued::Granted(_) = reissued {
            self.spec.clone_from(to);
        }
        Ok(reissued)
    }

    async fn release(&mut self) -> Result<Released> {
        Ok(self.shared.with(|store, now, wakes| store.release(&self.spec, now, wakes)))
    }
}
