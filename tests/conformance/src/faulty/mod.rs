//! A wrapper around any backend that loses, delays and counts the calls between it and the core.

mod claim;
mod line;

use std::{future, sync::Arc, time::SystemTime};

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, Kind, LockName, Result,
    spi::{
        Admin, Backend, Claim, ClaimSpec, Descriptor, Diagnostic, Inspection, Note, Released, Role,
        Wake,
    },
};

use self::claim::FaultyClaim;
pub use self::line::{Call, Line, Op};
use crate::admin::admin;

/// A backend whose calls go through a [`Line`].
#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn Backend>,
    line: Arc<Line>,
}

impl Faulty {
    /// Wraps `inner`, without a fault yet.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>) -> Self {
        let line = Arc::new(Line::new(inner.descriptor().name));
        Self { inner, line }
    }

    /// The line, to set its faults and to read its log.
    #[must_use]
    pub fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Faulty {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn claim(&self, mut spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let signal = self.line.signal(spec.wake);
        spec.wake = Wake::to(&signal);
        let owner = spec.owner;
        let inner = self.inner.claim(spec)?;
        Ok(Box::new(FaultyClaim::new(inner, Arc::clone(&self.line), signal, owner)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.line.carry(None, Op::Inspect, self.inner.inspect(name)).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.line.carry(None, Op::ForceRelease, self.inner.force_release(name, token)).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()?;
        Some(self)
    }

    async fn changed(&self, name: &LockName) {
        if self.line.is_mute() {
            future::pending().await
        }
        self.inner.changed(name).await;
        self.line.woke();
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Admin for Faulty {
    async fn probe(&self) -> Result<Role> {
        self.line.carry(None, Op::Probe, admin(&*self.inner).probe()).await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        self.line.carry(None, Op::Names, admin(&*self.inner).names(kind, prefix)).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        self.line.carry(None, Op::Note, admin(&*self.inner).note(name)).await
    }

    async fn time(&self) -> Result<SystemTime> {
        self.line.carry(None, Op::Time, admin(&*self.inner).time()).await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        self.line.carry(None, Op::Diagnose, admin(&*self.inner).diagnose()).await
    }
}
