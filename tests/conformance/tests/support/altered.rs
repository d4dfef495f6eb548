//! The memory store with another descriptor, and with claims that differ from its own.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Store, stores::MemoryStore};
use lockkit_core::{
    FencingToken, LockName, Result,
    spi::{Admin, Backend, Claim, ClaimSpec, Descriptor, Inspection, Released},
};

/// Makes a claim on the memory store.
type MakeClaim = Arc<dyn Fn(&dyn Backend, ClaimSpec) -> Result<Box<dyn Claim>> + Send + Sync>;

#[derive(Clone)]
pub(crate) struct AlteredStore {
    name: &'static str,
    descriptor: Descriptor,
    make_claim: MakeClaim,
}

impl AlteredStore {
    pub(crate) fn new(
        name: &'static str,
        describe: impl FnOnce(Descriptor) -> Descriptor,
        make_claim: impl Fn(&dyn Backend, ClaimSpec) -> Result<Box<dyn Claim>> + Send + Sync + 'static,
    ) -> Self {
        let descriptor = describe(MemoryStore::new().descriptor());
        Self { name, descriptor, make_claim: Arc::new(make_claim) }
    }
}

impl fmt::Debug for AlteredStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[async_trait]
impl Store for AlteredStore {
    fn name(&self) -> &str {
        self.name
    }

    fn descriptor(&self) -> Descriptor {
        self.descriptor.clone()
    }

    fn hooks(&self) -> Vec<Hook> {
        Vec::new()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(AlteredHarness {
            memory: MemoryStore::new().open().await?,
            store: self.clone(),
        }))
    }
}

#[derive(Debug)]
struct AlteredHarness {
    memory: Box<dyn Harness>,
    store: AlteredStore,
}

#[async_trait]
impl Harness for AlteredHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(Altered { inner: self.memory.connect().await?, store: self.store.clone() }))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        self.memory.expire_now(name).await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        self.memory.leaks().await
    }

    async fn close(&self) {
        self.memory.close().await;
    }
}

#[derive(Debug)]
struct Altered {
    inner: Arc<dyn Backend>,
    store: AlteredStore,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Altered {
    fn descriptor(&self) -> &Descriptor {
        &self.store.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        (self.store.make_claim)(&*self.inner, spec)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.inner.force_release(name, token).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()
    }

    async fn changed(&self, name: &LockName) {
        self.inner.changed(name).await;
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
