//! The optimistic strategy: a row is a lease.
//!
//! One statement takes a mutex, one releases it, and one renews all leases that are due together.
//! While the client is busy, one statement releases several mutexes.
//! Two statements in one request take a place among several holders. `fence` is the version that
//! each of them compares. The server's clock alone decides when a lease
//! ends. A waiter holds no connection: one task looks at all locks from time to time, without
//! locking their rows.

mod claim;
mod gc;
mod hold;
mod holders;
mod inspect;
mod known;
mod look;
mod poller;
mod record;
mod release;
mod renewal;
mod row;
mod store;
#[cfg(test)]
mod tests;
mod unanswered;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Capabilities, Claim, ClaimSpec, Descriptor, Exceptions, Inspection, Poll, Released,
        RenewalPacing,
    },
};

use self::{claim::LeaseClaim, record::Form, store::Store};
use crate::{error, pool::Pool, strategy::Locking};

/// A waiter is called when there is something to ask. It also polls at these intervals, because a
/// call may get lost.
const POLL: Poll = Poll { min: Duration::from_millis(100), max: Duration::from_secs(1) };
/// How long after the end of a lease a waiter looks again.
const TAKEOVER_DELAY: Duration = Duration::from_millis(100);

/// The backend whose locks are leases in rows.
#[derive(Debug)]
pub(crate) struct Optimistic {
    store: Arc<Store>,
    descriptor: Descriptor,
}

impl Optimistic {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        let capabilities = Capabilities {
            exclusive: true,
            shared: true,
            permits: true,
            labels: true,
            names: true,
            extend: true,
            transfer: true,
            tickets: true,
            raise_token: true,
            notes: true,
            time: true,
            ..Capabilities::NONE
        };
        let descriptor = Descriptor {
            capabilities,
            exceptions: Exceptions { server_clock_step: true, ..Exceptions::NONE },
            poll: POLL,
            takeover_delay: TAKEOVER_DELAY,
            renewal_pacing: RenewalPacing { longest: Duration::MAX, together: true },
            ..Descriptor::new(error::BACKEND)
        };
        Self { store: Arc::new(Store::new(pool)), descriptor }
    }
}

#[async_trait]
impl Locking for Optimistic {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let Some(form) = Form::of(spec.name.kind(), spec.mode) else {
            let reason = format!(
                "the MySQL backend has no {} in the mode {:?}",
                spec.name.kind(),
                spec.mode
            );
            return Err(error::ours(ErrorKind::Unsupported, reason));
        };
        Ok(Box::new(LeaseClaim::new(Arc::clone(&self.store), form, spec)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.store.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.store.force_release(name, token.get()).await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        self.store.names(kind, prefix).await
    }

    async fn collect_garbage(&self) -> Result<u64> {
        self.store.collect_garbage().await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
