//! Backends with deliberate flaws, to prove that a suite or a checker catches them.

mod claim;
mod flaw;

use std::{
    collections::HashMap,
    fs::File,
    future, mem,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use lockkit_core::{
    Error, ErrorKind, FencingToken, Kind, LockName, Result, Tick,
    spi::{
        Admin, Backend, Claim, ClaimSpec, Descriptor, Diagnostic, Inspection, Mode, Note, Released,
        Role, Wake,
    },
};
use tokio::{task::JoinHandle, time::timeout};

use self::claim::MutantClaim;
pub use self::flaw::Flaw;
use crate::{admin::admin, harness::free_all};

/// A day of 2026.
const FROZEN: Duration = Duration::from_secs(1_790_000_000);
/// A part that is not silent answers within this time.
const PROMPT: Duration = Duration::from_millis(800);
/// Far longer than any lease of a test.
const ENDLESS: Duration = Duration::from_secs(600);

/// A store with a flaw: the state that all its connections share.
#[derive(Clone, Debug)]
pub struct Mutation {
    flaw: Flaw,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The flaw's earlier ends of grants that the store itself keeps for longer.
    ends: Mutex<HashMap<(LockName, FencingToken), Tick>>,
    /// By how much the clock of the store was set back.
    set_back: Mutex<Duration>,
    /// The wake-ups of all claims that ever existed.
    wakes: Mutex<Vec<Wake>>,
    /// The notes of a store that accepts any note.
    notes: Mutex<HashMap<LockName, Note>>,
    /// Whether the store has no room for writes.
    full: AtomicBool,
    /// A task of the runtime that used the store first, which all requests need.
    home: OnceLock<JoinHandle<()>>,
}

impl Mutation {
    /// A store with this flaw.
    #[must_use]
    pub fn new(flaw: Flaw) -> Self {
        Self { flaw, shared: Arc::default() }
    }

    /// Puts the flaw into a connection to the store.
    #[must_use]
    pub fn wrap(&self, inner: Arc<dyn Backend>) -> Arc<dyn Backend> {
        self.wrap_whole(inner, Vec::new())
    }

    /// Puts the flaw into a connection to a store that has several parts.
    #[must_use]
    pub fn wrap_whole(
        &self,
        inner: Arc<dyn Backend>,
        parts: Vec<Arc<dyn Backend>>,
    ) -> Arc<dyn Backend> {
        Arc::new(Mutant { inner, parts, mutation: self.clone() })
    }

    /// Sets the clock of the store back.
    pub fn set_clock_back(&self, by: Duration) {
        *lock(&self.shared.set_back) = by;
    }

    /// Fills the store, or makes room.
    pub fn set_full(&self, full: bool) {
        self.shared.full.store(full, SeqCst);
    }

    #[expect(clippy::disallowed_methods, reason = "the flaw itself")]
    fn needs_its_home(&self) -> Result<()> {
        let home = self.shared.home.get_or_init(|| tokio::spawn(future::pending::<()>()));
        if home.is_finished() {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the runtime of the connection has ended",
            ));
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Mutant {
    inner: Arc<dyn Backend>,
    parts: Vec<Arc<dyn Backend>>,
    mutation: Mutation,
}

impl Mutant {
    /// The claim as the flaw reports it to the store.
    fn distorted(&self, mut spec: ClaimSpec) -> ClaimSpec {
        match (self.mutation.flaw, spec.mode) {
            (Flaw::BroadcastOnRelease, _) => {
                lock(&self.mutation.shared.wakes).push(spec.wake.clone())
            }
            (Flaw::FoldedNames, _) => {
                spec.name = renamed(&spec.name, &spec.name.as_str().to_lowercase());
            }
            (Flaw::LimitOffByOne, Mode::Permits { count, limit }) => {
                spec.mode = Mode::Permits { count, limit: limit.saturating_add(1) };
            }
            (Flaw::MuteStore, _) => spec.wake = Wake::none(),
            (Flaw::NoLease, _) => spec.ttl = ENDLESS,
            (Flaw::ResumeCompetes, _) => spec.resumes = None,
            (Flaw::ReadersApart, Mode::Shared) => {
                spec.name = renamed(&spec.name, &format!("readers of {}", spec.name.as_str()));
            }
            _ => {}
        }
        spec
    }
}

fn renamed(name: &LockName, text: &str) -> LockName {
    LockName::new(name.kind(), text).unwrap()
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Backend for Mutant {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    #[expect(clippy::disallowed_methods, reason = "one of the flaws")]
    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let spec = self.distorted(spec);
        match self.mutation.flaw {
            Flaw::LeakedFile => mem::forget(File::open(std::env::current_exe().unwrap()).unwrap()),
            Flaw::LeakedTask => drop(tokio::spawn(future::pending::<()>())),
            _ => {}
        }
        let inner = self.inner.claim(spec.clone())?;
        Ok(Box::new(MutantClaim::new(inner, Arc::clone(&self.inner), spec, self.mutation.clone())))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        if self.mutation.flaw == Flaw::LooksAtOnePart {
            for part in self.parts.iter().rev() {
                if let Ok(Ok(seen)) = timeout(PROMPT, part.inspect(name)).await {
                    return Ok(seen);
                }
            }
        }
        let seen = self.inner.inspect(name).await;
        if self.mutation.flaw == Flaw::UnclearIsFree { Ok(seen.unwrap_or_default()) } else { seen }
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        if self.mutation.flaw == Flaw::ForceReleaseWithoutCompare {
            free_all(&*self.inner, name).await?;
            return Ok(Released::Freed);
        }
        let released = self.inner.force_release(name, token).await;
        if self.mutation.flaw == Flaw::UnclearIsFree {
            return Ok(released.unwrap_or(Released::NotHeld));
        }
        released
    }

    fn admin(&self) -> Option<&dyn Admin> {
        self.inner.admin()?;
        Some(self)
    }

    async fn changed(&self, name: &LockName) {
        self.inner.changed(name).await;
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Admin for Mutant {
    async fn probe(&self) -> Result<Role> {
        admin(&*self.inner).probe().await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        if self.mutation.flaw == Flaw::NamesOfEachKind {
            let mut names = Vec::new();
            for kind in [Kind::Election, Kind::Mutex, Kind::RwLock, Kind::Semaphore] {
                names.extend(admin(&*self.inner).names(kind, prefix).await?);
            }
            return Ok(names);
        }
        admin(&*self.inner).names(kind, prefix).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        if matches!(self.mutation.flaw, Flaw::NoteIsReplaced | Flaw::NoteOfAnybody) {
            return Ok(lock(&self.mutation.shared.notes).get(name).cloned().unwrap_or_default());
        }
        admin(&*self.inner).note(name).await
    }

    async fn time(&self) -> Result<SystemTime> {
        if self.mutation.flaw == Flaw::FrozenClock {
            return Ok(SystemTime::UNIX_EPOCH + FROZEN);
        }
        admin(&*self.inner).time().await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        admin(&*self.inner).diagnose().await
    }
}
