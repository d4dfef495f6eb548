//! The embedded memory store.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    LockName, Memory,
    spi::{Backend, Descriptor},
};

use crate::harness::{BoxError, Harness, Hook, Store, free_all};

/// The embedded memory store, a new one for each case.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryStore(());

impl MemoryStore {
    /// A memory store, which needs no configuration.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &str {
        "memory"
    }

    fn descriptor(&self) -> Descriptor {
        Memory::new().descriptor().clone()
    }

    fn hooks(&self) -> Vec<Hook> {
        vec![Hook::ClockBack, Hook::Fill]
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(MemoryHarness(Memory::new())))
    }
}

#[derive(Debug)]
struct MemoryHarness(Memory);

#[async_trait]
impl Harness for MemoryHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.0.clone()))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        Ok(free_all(&self.0, name).await?)
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        Ok(match self.0.len() {
            0 => Vec::new(),
            names => vec![format!("{names} names are not idle")],
        })
    }

    async fn close(&self) {}

    /// Does nothing: no clock that can be set back decides here.
    async fn set_clock_back(&self, _: &LockName, _: Duration) -> Result<(), BoxError> {
        Ok(())
    }

    async fn fill(&self) -> Result<(), BoxError> {
        Ok(())
    }

    async fn make_room(&self) -> Result<(), BoxError> {
        Ok(())
    }
}
