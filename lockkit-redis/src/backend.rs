//! Implements the interface of backends on Redis.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Admin, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Diagnostic, Exceptions,
        Inspection, Note, Poll, Released, Role,
    },
};

use crate::{
    claim::RedisClaim,
    config::{BACKEND, Config},
    diagnosis, error, inspect,
    keys::Keyspace,
    names, note,
    store::Store,
    time,
};

/// How often waiters poll although messages wake them: a message can get lost.
const SLOW_POLL: Poll = Poll { min: Duration::from_millis(100), max: Duration::from_secs(1) };
/// How often waiters poll where no message wakes them.
const FAST_POLL: Poll = Poll { min: Duration::from_millis(10), max: Duration::from_millis(200) };
/// Redis compares whole milliseconds when it lets a key lapse.
const TAKEOVER_DELAY: Duration = Duration::from_millis(1);

/// A store of locks on Redis: one server, the primary of a service, or a cluster.
///
/// ```
/// use lockkit_core::{Locker, Result};
/// use lockkit_redis::{Config, Redis};
///
/// # async fn connected() -> Result<()> {
/// let locker = Locker::new(Redis::connect(Config::new("10.0.0.5", 6379)).await?);
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// guard.release().await?;
/// locker.shutdown().await
/// # }
/// ```
#[derive(Debug)]
pub struct Redis {
    store: Arc<Store>,
    keyspace: Keyspace,
    descriptor: Descriptor,
}

impl Redis {
    /// Connects, and checks that the server can be used.
    ///
    /// The connection belongs to the tokio runtime in which this runs. The next request opens a
    /// lost connection anew.
    ///
    /// # Errors
    /// * [`Unavailable`](lockkit_core::ErrorKind::Unavailable) if no server answers
    /// * [`Authentication`](lockkit_core::ErrorKind::Authentication) if the server refuses the
    ///   login
    /// * [`ReadOnly`](lockkit_core::ErrorKind::ReadOnly) for a replica
    /// * [`Unsupported`](lockkit_core::ErrorKind::Unsupported) if the server may evict keys and the
    ///   configuration is strict
    /// * [`InvalidOption`](lockkit_core::ErrorKind::InvalidOption) if the prefix is in use with
    ///   other keys: raw ones beside escaped ones
    ///
    /// [`ErrorKind::Authentication`]: lockkit_core::ErrorKind::Authentication
    /// [`ErrorKind::ReadOnly`]: lockkit_core::ErrorKind::ReadOnly
    /// [`ErrorKind::Unavailable`]: lockkit_core::ErrorKind::Unavailable
    /// [`ErrorKind::Unsupported`]: lockkit_core::ErrorKind::Unsupported
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: Config) -> Result<Self> {
        let keyspace = config.keyspace();
        let store = Arc::new(Store::new(config));
        let (_, slot) = keyspace.strategy_key();
        let link = store.route(slot).next().await?.link;
        let capabilities = Capabilities {
            exclusive: true,
            shared: true,
            permits: true,
            fair: true,
            waiter_count: true,
            labels: true,
            extend: true,
            transfer: true,
            tickets: true,
            raise_token: true,
            notes: true,
            time: true,
            push: link.pushes(),
            // A raw key does not show whether it is a lock.
            names: !keyspace.raw,
        };
        let exceptions =
            Exceptions { async_failover: true, server_clock_step: true, ..Exceptions::NONE };
        let descriptor = Descriptor {
            capabilities,
            exceptions,
            poll: if link.pushes() { SLOW_POLL } else { FAST_POLL },
            takeover_delay: TAKEOVER_DELAY,
            ..Descriptor::new(BACKEND)
        };
        Ok(Self { store, keyspace, descriptor })
    }
}

#[async_trait]
impl Backend for Redis {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let keys = self.keyspace.keys(&spec.name)?;
        Ok(Box::new(RedisClaim::new(Arc::clone(&self.store), keys, spec)?))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let keys = self.keyspace.keys(name)?;
        self.store.patiently(inspect::inspect(&self.store, &keys, name.kind())).await?
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let keys = self.keyspace.keys(name)?;
        let answer = self.store.patiently(inspect::force_release(&self.store, &keys, token)).await;
        answer.map_err(Error::with_outcome_unknown)?
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn close(&self) -> Result<()> {
        self.store.close();
        Ok(())
    }
}

#[async_trait]
impl Admin for Redis {
    async fn probe(&self) -> Result<Role> {
        let keys = self.keyspace.keys(&LockName::new(Kind::Mutex, "lockkit health")?)?;
        self.store.patiently(names::probe(&self.store, &keys)).await?
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        if self.keyspace.raw {
            let reason =
                "could not list names with keys=raw: the keys do not show which of them are locks";
            return Err(error::ours(ErrorKind::Unsupported, reason));
        }
        names::names(&self.store, &self.keyspace, kind, prefix).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        let keys = self.keyspace.keys(name)?;
        self.store.patiently(note::note(&self.store, &keys)).await?
    }

    async fn time(&self) -> Result<SystemTime> {
        self.store.patiently(time::time(&self.store)).await?
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        diagnosis::diagnose(&self.store).await
    }
}
