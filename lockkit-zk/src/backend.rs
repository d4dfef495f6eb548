//! A ZooKeeper ensemble as a store of locks.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Admin, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Diagnostic, Holder, Inspection,
        LeaseScope, Mode, Note, Poll, Released, RenewalPacing, Role as ServerRole,
    },
};

use crate::{
    changed::{self, Subject},
    claim::QueueClaim,
    config::Config,
    diagnosis,
    error::{self, Phase},
    folder::can_be_unfair,
    inspect::{self, HolderNode},
    names, note,
    path::Layout,
    queue::Role,
    session::{self, Pool},
    time,
    unfair::UnfairClaim,
};

/// Watches wake the waiters. These polls find what a lost watch missed.
const POLL: Poll = Poll { min: Duration::from_secs(1), max: Duration::from_secs(5) };
/// The server ends a session at one of its ticks, and a session timeout has at least two ticks. The
/// deletion and the wake-up take some time, too.
const TAKEOVER_SLACK: Duration = Duration::from_millis(250);

/// A store of locks in a ZooKeeper ensemble.
///
/// ```
/// use lockkit_core::{Locker, Result};
/// use lockkit_zk::{Config, ZooKeeper};
///
/// # async fn connected() -> Result<()> {
/// let locker = Locker::new(ZooKeeper::connect(Config::new([("10.0.0.6", 2181), ("10.0.0.7", 2181)])).await?);
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// guard.release().await?;
/// locker.shutdown().await
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeper {
    pool: Arc<Pool>,
    layout: Layout,
    descriptor: Descriptor,
}

impl ZooKeeper {
    /// Opens a session, or uses that of a [client of the program](Config::from_client).
    ///
    /// The session belongs to the tokio runtime that this call runs in. The next session is opened
    /// when it is needed.
    ///
    /// With a client of the program, this waits until lockkit's heartbeats have proven the session:
    /// 0.4 of the session timeout.
    ///
    /// # Errors
    /// * [`ErrorKind::Unavailable`] with the reason of each server
    /// * [`ErrorKind::Closed`] if the session of the program's client has ended, and
    ///   [`ErrorKind::ReadOnly`] if its server is read-only
    /// * [`ErrorKind::Authentication`] and [`ErrorKind::PermissionDenied`]
    /// * [`ErrorKind::InvalidUrl`] if the chroot does not exist
    /// * [`ErrorKind::InvalidOption`] for settings that cannot work, or if others use the same
    ///   mutexes with another `fair`
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn connect(config: Config) -> Result<Self> {
        config.check()?;
        let layout = config.layout();
        let fair = config.fair;
        let pool = Arc::new(Pool::open(config).await?);
        let session = pool.session().await?;
        let timeout = session.timeout();
        if pool.config().client().is_some() {
            // A locker whose first locks fail would be of no use.
            session.ready(timeout * 2).await?;
        }
        let capabilities = Capabilities {
            exclusive: true,
            shared: true,
            permits: true,
            push: true,
            labels: true,
            names: true,
            notes: true,
            time: true,
            // Claims that race have no queue, and the store does not count them.
            fair,
            waiter_count: fair,
            ..Capabilities::NONE
        };
        let descriptor = Descriptor {
            capabilities,
            poll: POLL,
            takeover_delay: timeout / 2 + TAKEOVER_SLACK,
            min_ttl: timeout,
            longest_lease: session::longest_lease(timeout),
            lease_scope: LeaseScope::Session,
            renewal_pacing: RenewalPacing { longest: timeout / session::BEATS, together: false },
            ..Descriptor::new(error::BACKEND)
        };
        Ok(Self { pool, layout, descriptor })
    }

    fn is_single(&self, kind: Kind) -> bool {
        can_be_unfair(kind) && !self.pool.config().fair
    }
}

#[async_trait]
impl Backend for ZooKeeper {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        self.pool.config().check_ttl(spec.ttl, self.descriptor.min_ttl)?;
        let Some(role) = Role::of(spec.name.kind(), spec.mode) else {
            let reason = format!(
                "the ZooKeeper backend has no {} in the mode {:?}",
                spec.name.kind(),
                spec.mode
            );
            return Err(error::ours(ErrorKind::Unsupported, reason));
        };
        let pool = Arc::clone(&self.pool);
        if self.is_single(spec.name.kind()) {
            let folder = self.layout.lock(&spec.name);
            return Ok(Box::new(UnfairClaim::new(pool, folder, spec)));
        }
        Ok(Box::new(QueueClaim::new(pool, role, spec)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let session = self.pool.session().await?;
        let folder = self.layout.lock(name);
        if self.is_single(name.kind()) {
            let holder = inspect::unfair_holder(&session, &folder).await?;
            return Ok(Inspection::new(holder.iter().map(holder_of).collect(), None));
        }
        let queue = inspect::queue(&session, &folder, name.kind()).await?;
        let waiters = u64::try_from(queue.waiters).unwrap_or(u64::MAX);
        Ok(Inspection::new(queue.holders.iter().map(holder_of).collect(), Some(waiters)))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let session = self.pool.session().await?;
        let folder = self.layout.lock(name);
        let Ok(created) = i64::try_from(token.get()) else { return Ok(Released::NotHeld) };
        if self.is_single(name.kind()) {
            return inspect::free_single(&session, &folder, created).await;
        }
        let queue = inspect::queue(&session, &folder, name.kind()).await?;
        let victim =
            queue.holders.iter().find(|seen| seen.created == created && seen.record.is_some());
        match victim {
            Some(seen) => inspect::delete(&session, &format!("{folder}/{}", seen.node)).await,
            None => Ok(Released::NotHeld),
        }
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn changed(&self, name: &LockName) {
        let subject = match name.kind() {
            kind if self.is_single(kind) => Subject::UnfairNode,
            kind if can_be_unfair(kind) => Subject::First,
            _ => Subject::Folder,
        };
        changed::changed(&self.pool, &self.layout.lock(name), subject).await;
    }

    async fn close(&self) -> Result<()> {
        self.pool.close().await;
        Ok(())
    }
}

#[async_trait]
impl Admin for ZooKeeper {
    /// Sends a `sync`. The leader answers it through the member that the session is connected to. A
    /// single server is an ensemble of one.
    async fn probe(&self) -> Result<ServerRole> {
        let session = self.pool.session().await?;
        let synced = session.client()?.sync("/").await;
        synced.map_err(|error| session.failed(error, Phase::Read, "syncing", "/"))?;
        Ok(ServerRole::Member)
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        let session = self.pool.session().await?;
        names::in_use(&session, &self.layout, kind, prefix, self.is_single(kind)).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        note::note(&*self.pool.session().await?, self.pool.config(), name).await
    }

    async fn time(&self) -> Result<SystemTime> {
        time::time(&*self.pool.session().await?, self.pool.config()).await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        diagnosis::diagnose(&*self.pool.session().await?, self.pool.config()).await
    }
}

/// A node without a lockkit record belongs to a foreign client, such as Curator. Its data is
/// usually a text.
fn holder_of(seen: &HolderNode) -> Holder {
    let holder = Holder::new(seen.role.map_or(Mode::Exclusive, Role::mode));
    match &seen.record {
        Some(record) => holder
            .with_grant(record.owner, FencingToken::new(seen.created.cast_unsigned()))
            .with_label(record.label.clone()),
        None => {
            let text = String::from_utf8_lossy(&seen.data);
            holder.with_label(text.chars().filter(|c| !c.is_control()).collect::<String>())
        }
    }
}
