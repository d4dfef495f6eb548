//! The pessimistic strategy: the lock is a transaction.
//!
//! The transaction that has the lock of a name's row holds the name. The server frees the row lock
//! when the transaction ends, or when its connection breaks. It also frees it when it gets no
//! request on that connection for the lease (`wait_timeout`).
//!
//! The fencing token is raised on another connection while the row is locked, because it must
//! outlive the transaction. It is raised only while the server still has the lock's own connection.
//! And it is raised only from the value that was read under the lock.

mod acquire;
mod claim;
mod gc;
mod inspect;
mod own_transaction;
mod row_lock;
mod sql;
#[cfg(test)]
mod tests;
mod transaction;
mod transfer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Capabilities, Claim, ClaimSpec, Descriptor, Exceptions, Inspection, LeaseScope, Mode, Poll,
        Released, RenewalPacing,
    },
};

pub use self::transaction::LockTransaction;
use self::{
    claim::RowClaim,
    sql::{Key, Sql},
};
use crate::{
    error::{self, Phase},
    pool::Pool,
    server::Server,
    strategy::Locking,
    waiting::Waiters,
};

/// How long one attempt waits in the server, on a connection of its own.
const MAX_PATIENCE: Duration = Duration::from_secs(10);
/// The waiters in line are called. They also poll at these intervals, because a call may get lost,
/// and between two waits in the server.
const POLL: Poll = Poll { min: Duration::from_millis(50), max: Duration::from_secs(1) };
/// The server counts in whole seconds.
const MIN_TTL: Duration = Duration::from_secs(1);
const TAKEOVER_DELAY: Duration = Duration::from_millis(1500);
/// Only a request shows that a connection is dead.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

/// The backend whose locks are row locks that transactions hold.
#[derive(Debug)]
pub(crate) struct Pessimistic {
    store: Arc<Store>,
    descriptor: Descriptor,
}

/// The state that the claims share.
#[derive(Debug)]
struct Store {
    pool: Arc<Pool>,
    waiters: Arc<Waiters>,
    sql: Sql,
}

impl Store {
    fn new(pool: Arc<Pool>) -> Self {
        let sql =
            Sql::new(pool.config().tables(), pool.config().database(), pool.config().strict_lease);
        Self { pool, waiters: Arc::default(), sql }
    }

    /// Ends the strict lease of a transaction that is gone and can't end it itself, so that the
    /// next owner need not wait for it.
    ///
    /// # Errors
    /// The server did not end the lease, which then ends by itself.
    pub(super) async fn settle(
        &self,
        key: &Key,
        successor: Option<&Key>,
        server: &Server,
        patience: Duration,
    ) -> Result<()> {
        if !self.pool.config().strict_lease {
            return Ok(());
        }
        let mut side = self.pool.get_side(patience).await?;
        let settled = side.script(&key.settle(&self.sql, successor, server)).await;
        self.pool.checked(settled, Phase::Read, "ending the lease").map(drop)
    }
}

impl Pessimistic {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        // With strict leases, a claim that tries again and again without waiting relies on the
        // server's clock.
        let exceptions = if pool.config().strict_lease {
            Exceptions { server_clock_step: true, ..Exceptions::NONE }
        } else {
            Exceptions { connection_bound: true, ..Exceptions::NONE }
        };
        let capabilities = Capabilities {
            exclusive: true,
            labels: true,
            names: true,
            extend: true,
            transfer: true,
            raise_token: true,
            notes: true,
            time: true,
            ..Capabilities::NONE
        };
        let descriptor = Descriptor {
            capabilities,
            exceptions,
            max_patience: MAX_PATIENCE,
            poll: POLL,
            takeover_delay: TAKEOVER_DELAY,
            min_ttl: MIN_TTL,
            lease_scope: LeaseScope::Connection,
            renewal_pacing: RenewalPacing { longest: RENEWAL_INTERVAL, together: false },
            ..Descriptor::new(error::BACKEND)
        };
        Self { store: Arc::new(Store::new(pool)), descriptor }
    }
}

#[async_trait]
impl Locking for Pessimistic {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let kind = spec.name.kind();
        if spec.mode != Mode::Exclusive || !matches!(kind, Kind::Election | Kind::Mutex) {
            let reason = format!(
                "strategy=pessimistic has no {kind} in the mode {:?}, because it has only \
                 exclusive locks; use strategy=optimistic, with another table_prefix",
                spec.mode
            );
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
        if spec.ttl < MIN_TTL {
            let reason = format!(
                "ttl is {:?}, but with strategy=pessimistic it must be at least {MIN_TTL:?}, \
                 because the server counts idle time in whole seconds",
                spec.ttl
            );
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        }
        Ok(Box::new(RowClaim::new(Arc::clone(&self.store), spec)))
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
