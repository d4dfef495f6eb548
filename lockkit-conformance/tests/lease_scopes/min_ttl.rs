//! The memory store, less the short leases.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Store, stores::MemoryStore};
use lockkit_core::{
    Error, ErrorKind, FencingToken, LockName, Result,
    spi::{Backend, Claim, ClaimSpec, Descriptor, Inspection, Released},
};

const MIN_TTL: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct MinTtlStore;

#[async_trait]
impl Store for MinTtlStore {
    fn name(&self) -> &str {
        "min_ttl"
    }

    fn descriptor(&self) -> Descriptor {
        MemoryStore::new().descriptor().with_min_ttl(MIN_TTL)
    }

    fn hooks(&self) -> Vec<Hook> {
        MemoryStore::new().hooks()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(MinTtlHarness(MemoryStore::new().open().await?)))
    }
}

#[derive(Debug)]
struct MinTtlHarness(Box<dyn Harness>);

#[async_trait]
impl Harness for MinTtlHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let inner = self.0.connect().await?;
        Ok(Arc::new(MinTtl { inner, descriptor: MinTtlStore.descriptor() }))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        self.0.expire_now(name).await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        self.0.leaks().await
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

#[derive(Debug)]
struct MinTtl {
    inner: Arc<dyn Backend>,
    descriptor: Descriptor,
}

#[async_trait]
impl Backend for MinTtl {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        check(&spec, MIN_TTL)?;
        self.inner.claim(spec)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.inner.force_release(name, token).await
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
