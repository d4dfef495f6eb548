//! The memory store, less the short leases.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Store, stores::MemoryStore};
use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{Backend, Claim, ClaimSpec, Descriptor, Inspection, Released, Role},
};

const MIN_TTL: Duration = Duration::from_millis(300);

/// The store, and whether it refuses what it can't give.
#[derive(Debug)]
pub(crate) struct MinTtlStore {
    pub(crate) refuses: bool,
}

#[async_trait]
impl Store for MinTtlStore {
    fn name(&self) -> &str {
        "min_ttl"
    }

    fn descriptor(&self) -> Descriptor {
        let mut descriptor = MemoryStore::new().descriptor().with_min_ttl(MIN_TTL);
        (descriptor.capabilities.notes, descriptor.capabilities.time) = (false, false);
        descriptor
    }

    fn hooks(&self) -> Vec<Hook> {
        Vec::new()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(MinTtlHarness { memory: MemoryStore::new().open().await?, refuses: self.refuses }))
    }
}

#[derive(Debug)]
struct MinTtlHarness {
    memory: Box<dyn Harness>,
    refuses: bool,
}

#[async_trait]
impl Harness for MinTtlHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let inner = self.memory.connect().await?;
        let store = MinTtlStore { refuses: self.refuses };
        Ok(Arc::new(MinTtl { inner, descriptor: store.descriptor(), refuses: self.refuses }))
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
struct MinTtl {
    inner: Arc<dyn Backend>,
    descriptor: Descriptor,
    refuses: bool,
}

#[async_trait]
impl Backend for MinTtl {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        if self.refuses {
            check(&spec, MIN_TTL)?;
        }
        self.inner.claim(spec)
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

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

pub(crate) fn check(spec: &ClaimSpec, min_ttl: Duration) -> Result<()> {
    if spec.ttl >= min_ttl {
        return Ok(());
    }
    let text = format!("ttl is {:?}, this store gives at least {min_ttl:?}", spec.ttl);
    Err(Error::new(ErrorKind::InvalidOption, text))
}
