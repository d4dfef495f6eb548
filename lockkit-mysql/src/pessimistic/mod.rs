//! The pessimistic strategy: the lock is a transaction.

use async_trait::async_trait;
use lockkit_core::{
    ErrorKind, FencingToken, LockName, Result,
    spi::{Backend, Claim, ClaimSpec, Descriptor, Inspection, Released},
};

use crate::{backend::Kept, error, pool::Pool};

/// Row locks held by transactions.
#[derive(Debug)]
pub(crate) struct Pessimistic {
    pool: Pool,
    descriptor: Descriptor,
}

impl Pessimistic {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, descriptor: Descriptor::new(error::BACKEND) }
    }
}

#[async_trait]
impl Backend for Pessimistic {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, _spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        Err(error::ours(ErrorKind::Unsupported, "not built yet"))
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection> {
        Ok(Inspection::default())
    }

    async fn force_release(&self, _name: &LockName, _token: FencingToken) -> Result<Released> {
        Ok(Released::NotHeld)
    }

    async fn close(&self) -> Result<()> {
        self.pool.close().await;
        Ok(())
    }
}

#[async_trait]
impl Kept for Pessimistic {
    async fn collect_garbage(&self) -> Result<u64> {
        Ok(0)
    }
}
