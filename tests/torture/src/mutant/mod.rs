//! Backends that are wrong on purpose: the checker must catch each of them.

mod claim;
mod ear;
mod flaw;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use async_trait::async_trait;
use lockkit::{
    FencingToken, Kind, LockName, Released, Result, Tick,
    spi::{Backend, Claim, ClaimSpec, Descriptor, Finding, Inspection, Note, Role},
};

use self::claim::MutantClaim;
pub(crate) use self::ear::Signal;
pub use self::{
    ear::Ear,
    flaw::{Flaw, ParseFlawError},
};

/// A backend with a flaw.
#[derive(Debug)]
pub struct Mutant {
    inner: Arc<dyn Backend>,
    flaw: Flaw,
    shared: Arc<Shared>,
}

/// What all claims of one mutant share.
#[derive(Debug, Default)]
struct Shared {
    /// When grants end that the store keeps for longer.
    ends: Mutex<BTreeMap<(LockName, FencingToken), Tick>>,
}

impl Shared {
    fn ends(&self) -> MutexGuard<'_, BTreeMap<(LockName, FencingToken), Tick>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mutant {
    /// Puts a flaw into a backend.
    pub fn wrap(backend: Arc<dyn Backend>, flaw: Flaw) -> Arc<dyn Backend> {
        Arc::new(Self { inner: backend, flaw, shared: Arc::default() })
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Mutant {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let inner = self.inner.claim(spec.clone())?;
        let (backend, shared) = (Arc::clone(&self.inner), Arc::clone(&self.shared));
        Ok(Box::new(MutantClaim::new(inner, backend, spec, self.flaw, shared)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.inner.force_release(name, token).await
    }

    async fn probe(&self) -> Result<Role> {
        self.inner.probe().await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        self.inner.names(kind, prefix).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        self.inner.note(name).await
    }

    async fn time(&self) -> Result<SystemTime> {
        self.inner.time().await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        self.inner.diagnose().await
    }

    async fn changed(&self, name: &LockName) {
        self.inner.changed(name).await;
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
