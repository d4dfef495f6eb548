//! A folder as a store of locks.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use lockkit_core::{
    ErrorKind, FencingToken, Kind, LockName, Result,
    spi::{
        Backend, Capabilities, Claim, ClaimSpec, Descriptor, Exceptions, Inspection, LeaseScope, Mode, Note,
        Released, Role,
    },
};
use tokio::{sync::Notify, task::coop::consume_budget};

use crate::{
    claim::FileClaim,
    config::Config,
    error::{BACKEND, ours},
    folder::{Folder, Place},
    mount, names, note,
    record::{Record, Share},
    store::Store,
    watching::Watcher,
};

/// The watcher wakes the waiters; this is for wake-ups that get lost.
const POLL: Duration = Duration::from_secs(1);
/// One poll with its jitter of 25 %.
const TAKEOVER_DELAY: Duration = Duration::from_millis(1_250);
/// Of what no claim asks for.
const PATIENCE: Duration = Duration::from_secs(2);

static DESCRIPTOR: Descriptor = Descriptor::new(BACKEND)
    .with_capabilities(
        Capabilities::none()
            .with_exclusive()
            .with_shared()
            .with_permits()
            .with_fair()
            .with_push()
            .with_waiter_count()
            .with_labels()
            .with_names()
            .with_notes()
            .with_time()
            .with_reissue()
            .with_raise_fence(),
    )
    .with_exceptions(Exceptions::none().with_no_lease())
    .with_poll(POLL, POLL)
    .with_takeover_delay(TAKEOVER_DELAY)
    .with_lease_scope(LeaseScope::Session);

/// A store of locks in a folder of this host.
///
/// What it holds is free when it is closed or dropped, and when its process ends.
#[derive(Debug)]
pub struct FileStore {
    shared: Arc<Shared>,
}

/// What a backend and its claims share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<Store>,
    polling: bool,
    watcher: Mutex<Option<Watcher>>,
}

impl FileStore {
    /// Opens a folder; what is missing is made.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if it can't be written, [`ErrorKind::Unsupported`] if it is on a network file
    /// system, or what the system says.
    pub fn open(config: Config) -> Result<Self> {
        let folder = Folder::new(config.folder);
        folder.make()?;
        let is_remote = mount::check(folder.root(), config.allow_network_fs)?;
        for part in folder.parts() {
            mount::check_access(&part)?;
        }
        let (polling, watcher) = (config.polling || is_remote, Mutex::default());
        Ok(Self { shared: Arc::new(Shared { store: Arc::new(Store::new(folder)), polling, watcher }) })
    }

    fn place(&self, name: &LockName) -> Place {
        self.shared.store.folder.place(name)
    }
}

impl Shared {
    /// From now on changes are heard.
    ///
    /// # Errors
    /// There is no room for a thread; what the system says.
    pub(crate) fn watch(&self) -> Result<()> {
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if watcher.is_none() {
            *watcher = Some(Watcher::start(Arc::clone(&self.store), self.polling)?);
        }
        Ok(())
    }

    fn close(&self) {
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(watcher);
        self.store.close();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.close();
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
            let reason = format!("{count} permits are asked for, and there are only {limit}");
            return Err(ours(ErrorKind::InvalidOption, reason));
        }
        let Some(share) = Share::of(spec.mode) else {
            let reason = format!("a {} can't be held in the mode {:?}", spec.name.kind(), spec.mode);
            return Err(ours(ErrorKind::Unsupported, reason));
        };
        Ok(Box::new(FileClaim::new(Arc::clone(&self.shared), spec, share)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        consume_budget().await;
        let store = &self.shared.store;
        Ok(store.read_living(&self.place(name))?.inspect(&store.now()))
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let free = |record: &mut Record, _: &_| Ok(record.force_release(token));
        self.shared.store.change(&self.place(name), None, PATIENCE, free, |_| {}).await
    }

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
        note::read(&self.place(name))
    }

    async fn time(&self) -> Result<SystemTime> {
        Ok(crate::host::wall_clock())
    }

    async fn changed(&self, name: &LockName) {
        if self.shared.watch().is_err() {
            // The core looks again now and then anyhow.
            return std::future::pending().await;
        }
        let observer = Observer { shared: &self.shared, place: self.place(name), bell: Arc::default() };
        observer.shared.store.locals.observe(&observer.place, &observer.bell);
        observer.bell.notified().await;
    }

    async fn close(&self) -> Result<()> {
        self.shared.close();
        Ok(())
    }
}

/// Hears of a lock until it is dropped.
struct Observer<'a> {
    shared: &'a Shared,
    place: Place,
    bell: Arc<Notify>,
}

impl Drop for Observer<'_> {
    fn drop(&mut self) {
        self.shared.store.locals.observe_no_more(&self.place, &self.bell);
    }
}
