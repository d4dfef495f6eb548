//! Makes a folder a store of locks.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Admin, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Diagnostic, Exceptions,
        Inspection, LeaseScope, Mode, Note, Poll, Released, Role,
    },
};
use tokio::{sync::Notify, task::coop::consume_budget};

use crate::{
    claim::FileClaim,
    config::Config,
    diagnosis,
    error::{BACKEND, ours},
    folder::{Folder, LockPaths},
    gate_cache::GateCache,
    host::{self, Now},
    mount, names, note,
    record::{Record, Share},
    shared::Shared,
    store::Store,
};

/// The watcher wakes the waiters. The poll is for wake-ups that get lost.
const POLL: Duration = Duration::from_secs(1);
/// One poll with its jitter of 25 %.
const TAKEOVER_DELAY: Duration = Duration::from_millis(1_250);
/// How long an operator's change waits for the gate; it has no claim whose options would say so.
const PATIENCE: Duration = Duration::from_secs(2);

static DESCRIPTOR: Descriptor = Descriptor {
    capabilities: Capabilities {
        exclusive: true,
        shared: true,
        permits: true,
        fair: true,
        push: true,
        waiter_count: true,
        labels: true,
        names: true,
        notes: true,
        time: true,
        transfer: true,
        raise_token: true,
        ..Capabilities::NONE
    },
    exceptions: Exceptions { no_lease: true, ..Exceptions::NONE },
    poll: Poll { min: POLL, max: POLL },
    takeover_delay: TAKEOVER_DELAY,
    lease_scope: LeaseScope::Session,
    ..Descriptor::new(BACKEND)
};

/// A store of locks in a folder of this host.
///
/// Its locks are free when it is closed or dropped, and when its process ends.
///
/// ```
/// use lockkit_core::Locker;
/// use lockkit_file::{Config, FileStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().join("locks");
/// let locker = Locker::new(FileStore::open(Config::new(folder))?); // such as /var/lib/app/locks
/// let guard = locker.mutex("orders/42")?.lock().await?;
/// guard.release().await?;
/// locker.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<Shared>,
}

impl FileStore {
    /// Opens a folder, and makes the parts that are missing.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if the folder can't be written, [`ErrorKind::Unsupported`]
    /// if it is on a network file system, or another error of the system.
    pub fn open(config: Config) -> Result<Self> {
        let folder = Folder::new(config.folder);
        // This check comes first, so that no folder is made on a file system that is refused.
        let mut is_remote = mount::check(mount::nearest(folder.root()), config.allow_network_fs)?;
        folder.make()?;
        for part in folder.parts().chain([folder.root().to_owned()]) {
            // Each part may be on another file system.
            is_remote |= mount::check(&part, config.allow_network_fs)?;
            mount::check_access(&part)?;
        }
        let polling = config.polling || is_remote;
        let gates = if is_remote { GateCache::disabled() } else { GateCache::new() };
        Ok(Self { shared: Arc::new(Shared::new(Store::new(folder, gates), polling)) })
    }

    fn paths(&self, name: &LockName) -> LockPaths {
        self.shared.store.folder.paths(name)
    }
}

#[async_trait]
impl Backend for FileStore {
    fn descriptor(&self) -> &Descriptor {
        &DESCRIPTOR
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        if let Mode::Permits { count, limit } = spec.mode
            && count > limit
        {
            let reason =
                format!("the claim wants {count} permits, but the semaphore has only {limit}");
            return Err(ours(ErrorKind::InvalidOption, reason));
        }
        let Some(share) = Share::of(spec.mode) else {
            let reason =
                format!("the file backend has no {} in the mode {:?}", spec.name.kind(), spec.mode);
            return Err(ours(ErrorKind::Unsupported, reason));
        };
        Ok(Box::new(FileClaim::new(Arc::clone(&self.shared), spec, share)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        consume_budget().await;
        let store = &self.shared.store;
        Ok(store.read_living(&self.paths(name))?.inspect(&Now::tell()))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let free = |record: &mut Record, _: &_| Ok(record.force_release(token));
        self.shared.store.change(&self.paths(name), None, PATIENCE, free, |_| {}).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn changed(&self, name: &LockName) {
        if self.shared.watch().is_err() {
            // The core looks again now and then anyway.
            return std::future::pending().await;
        }
        let observer =
            Observer { shared: &self.shared, paths: self.paths(name), signal: Arc::default() };
        observer.shared.store.local_claims.observe(&observer.paths, &observer.signal);
        observer.signal.notified().await;
    }

    async fn close(&self) -> Result<()> {
        self.shared.close();
        Ok(())
    }
}

#[async_trait]
impl Admin for FileStore {
    async fn probe(&self) -> Result<Role> {
        for part in self.shared.store.folder.parts() {
            mount::check_access(&part)?;
        }
        Ok(Role::Primary)
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        names::in_use(&self.shared.store, kind, prefix).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        note::read(&self.paths(name))
    }

    async fn time(&self) -> Result<SystemTime> {
        Ok(host::wall_clock())
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        diagnosis::diagnose(&self.shared.store.folder, self.shared.polling)
    }
}

/// Hears of changes of a lock until it is dropped.
struct Observer<'a> {
    shared: &'a Shared,
    paths: LockPaths,
    signal: Arc<Notify>,
}

impl Drop for Observer<'_> {
    fn drop(&mut self) {
        self.shared.store.local_claims.observe_no_more(&self.paths, &self.signal);
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Shutdown, thread};

    use lockkit_core::Clock;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_watcher_that_has_ended_is_started_again() {
        let root = TempDir::new().unwrap();
        let store = FileStore::open(Config::new(root.path())).unwrap();
        let is_over = || store.shared.watcher.lock().unwrap().as_ref().unwrap().is_over();
        store.shared.watch().unwrap();
        store
            .shared
            .watcher
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .line
            .shutdown(Shutdown::Both)
            .unwrap();
        let start = Clock::Boot.now();
        while !is_over() {
            assert!(start.until(Clock::Boot.now()) < Duration::from_secs(60));
            thread::yield_now();
        }
        store.shared.watch().unwrap();
        assert!(!is_over());
    }

    #[test]
    fn c1_the_nearest_existing_folder_determines_the_file_system() {
        let above = TempDir::new().unwrap();
        let wanted = above.path().join("a/b");
        assert_eq!(mount::nearest(&wanted), above.path());
        assert_eq!(mount::nearest(above.path()), above.path());
        assert_eq!(
            mount::nearest(std::path::Path::new("a-folder-that-is-not-there")),
            std::path::Path::new(".")
        );
    }
}
