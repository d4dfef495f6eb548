//! A store that grants everything at once, so a bench measures only the driver.

use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, LockName, Result,
    spi::{
        Attempt, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Grant, Inspection, Lease,
        Released, RenewalOutcome, Wait,
    },
};

/// The backend.
#[derive(Debug)]
pub(crate) struct Instant(Descriptor);

impl Default for Instant {
    fn default() -> Self {
        Self(Descriptor {
            capabilities: Capabilities { exclusive: true, ..Capabilities::NONE },
            ..Descriptor::new("instant")
        })
    }
}

#[async_trait]
impl Backend for Instant {
    fn descriptor(&self) -> &Descriptor {
        &self.0
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        Ok(Box::new(InstantClaim(spec.ttl)))
    }

    async fn inspect(&self, _: &LockName) -> Result<Inspection> {
        Ok(Inspection::default())
    }

    async fn force_release(&self, _: &LockName, _: FencingToken) -> Result<Released> {
        Ok(Released::NotHeld)
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct InstantClaim(Duration);

#[async_trait]
impl Claim for InstantClaim {
    async fn attempt(&mut self, _: Wait) -> Result<Attempt> {
        Ok(Attempt::Granted(Grant::new(FencingToken::new(1), Lease::For(self.0))))
    }

    async fn renew(&mut self, _: Option<Duration>) -> Result<RenewalOutcome> {
        Ok(RenewalOutcome::Alive(Lease::For(self.0)))
    }

    async fn release(&mut self) -> Result<Released> {
        Ok(Released::Freed)
    }
}
