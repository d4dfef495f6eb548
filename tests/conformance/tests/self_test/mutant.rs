//! A memory store with a flaw.

use std::{
    collections::HashMap,
    future, mem,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Link, Store, faulty::Faulty, stores::MemoryStore};
use lockkit_core::{
    Error, ErrorKind, FencingToken, LockName, OwnerId, Result,
    spi::{
        Attempt, Backend, Claim, ClaimSpec, Descriptor, Grant, Hint, Inspection, Lease, Mode, Note, Noted,
        Pulse, Released, Wait,
    },
};
use tokio::task::JoinHandle;

/// A day of 2026.
const FROZEN: Duration = Duration::from_secs(1_790_000_000);

/// Too long for a renewal of the leases of the cases, however quick all else is.
const SLOW: Duration = Duration::from_millis(1_500);

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    AttemptByAnotherOwner,
    BlocksWhileAway,
    BroadcastOnRelease,
    ConstantToken,
    DeadlineFromReply,
    DeleteWithoutCompare,
    ExtendThatShortens,
    FoldedNames,
    ForceReleaseWithoutCompare,
    FrozenClock,
    FullRefusesRenewals,
    LeakedFile,
    LeakedTask,
    LimitOffByOne,
    LostRenewalIgnored,
    MuteStore,
    NoLease,
    NoQueue,
    NoRecheckAfterWait,
    NoteIsRenewal,
    NoteIsReplaced,
    NoteOfAnybody,
    OneRuntime,
    QueueEntryStays,
    ReadersApart,
    ReleaseAlwaysFreed,
    RenewalOfNothing,
    RenewalRecreates,
    RenewalTellsWhatIsLeft,
    RenewsOnce,
    RetryReportsWholeLease,
    SlowRenewal,
    TokenSharedByPermits,
}

#[derive(Debug)]
pub(crate) struct MutantStore(pub(crate) Flaw);

#[async_trait]
impl Store for MutantStore {
    fn name(&self) -> &str {
        "mutant"
    }

    fn descriptor(&self) -> Descriptor {
        let mut descriptor = MemoryStore::new().descriptor();
        if self.0 == Flaw::NoQueue {
            descriptor.capabilities.waiter_count = false;
        }
        descriptor
    }

    fn hooks(&self) -> Vec<Hook> {
        MemoryStore::new().hooks()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let memory = MemoryStore::new().open().await?;
        Ok(Box::new(MutantHarness { memory, flaw: self.0, shared: Arc::default() }))
    }
}

#[derive(Debug)]
struct MutantHarness {
    memory: Box<dyn Harness>,
    flaw: Flaw,
    shared: Arc<Shared>,
}

#[async_trait]
impl Harness for MutantHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let inner = self.memory.connect().await?;
        Ok(Arc::new(Mutant { inner, flaw: self.flaw, shared: Arc::clone(&self.shared) }))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        if self.flaw != Flaw::BlocksWhileAway {
            let faulty = Faulty::new(self.connect().await?);
            let line = faulty.line();
            return Ok((Arc::new(faulty), line));
        }
        // In front of the faults, it meets their errors.
        let faulty = Faulty::new(self.memory.connect().await?);
        let line = faulty.line();
        let shared = Arc::clone(&self.shared);
        Ok((Arc::new(Mutant { inner: Arc::new(faulty), flaw: self.flaw, shared }), line))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        self.memory.expire_now(name).await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        self.memory.leaks().await
    }

    async fn close(&self) {
        self.memory.close().await;
    }

    async fn set_clock_back(&self, _: &LockName, by: Duration) -> Result<(), BoxError> {
        *self.shared.later.lock().unwrap() = by;
        Ok(())
    }

    async fn fill(&self) -> Result<(), BoxError> {
        self.shared.full.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn make_room(&self) -> Result<(), BoxError> {
        self.shared.full.store(false, Ordering::SeqCst);
        Ok(())
    }
}

/// What all connections to the store share.
#[derive(Debug, Default)]
struct Shared {
    /// Ends of leases that are shorter than the store thinks.
    ends: Mutex<HashMap<FencingToken, Instant>>,
    /// How much later leases end than they did.
    later: Mutex<Duration>,
    /// Of all claims that there ever were.
    hints: Mutex<Vec<Hint>>,
    /// Of a store that takes any note.
    notes: Mutex<HashMap<LockName, Note>>,
    /// There is no room for writes.
    full: AtomicBool,
    /// A task of the runtime that used the store first, which all requests need.
    home: OnceLock<JoinHandle<()>>,
}

#[derive(Debug)]
struct Mutant {
    inner: Arc<dyn Backend>,
    flaw: Flaw,
    shared: Arc<Shared>,
}

impl Mutant {
    fn distort(&self, spec: &mut ClaimSpec) {
        match (self.flaw, spec.mode) {
            (Flaw::BroadcastOnRelease, _) => self.shared.hints.lock().unwrap().push(spec.hint.clone()),
            (Flaw::FoldedNames, _) => {
                spec.name = LockName::new(spec.name.kind(), &spec.name.as_str().to_lowercase()).unwrap();
            }
            (Flaw::LimitOffByOne, Mode::Permits { count, limit }) => {
                spec.mode = Mode::Permits { count, limit: limit.saturating_add(1) };
            }
            (Flaw::MuteStore, _) => spec.hint = Hint::none(),
            (Flaw::NoLease, _) => spec.ttl = Duration::from_secs(600),
            (Flaw::ReadersApart, Mode::Shared) => {
                spec.name =
                    LockName::new(spec.name.kind(), &format!("readers of {}", spec.name.as_str())).unwrap();
            }
            _ => {}
        }
    }
}

#[async_trait]
impl Backend for Mutant {
    fn descriptor(&self) -> &Descriptor {
        self.inner.descriptor()
    }

    fn claim(&self, mut spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        self.distort(&mut spec);
        match self.flaw {
            Flaw::LeakedFile => mem::forget(std::fs::File::open(std::env::current_exe().unwrap()).unwrap()),
            Flaw::LeakedTask => drop(tokio::spawn(future::pending::<()>())),
            _ => {}
        }
        let (backend, flaw, shared) = (Arc::clone(&self.inner), self.flaw, Arc::clone(&self.shared));
        let inner = backend.claim(spec.clone())?;
        Ok(Box::new(MutantClaim {
            inner,
            backend,
            spec,
            flaw,
            shared,
            attempts: 0,
            noted: false,
            renewals: 0,
            grant: None,
        }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        if self.flaw == Flaw::ForceReleaseWithoutCompare {
            return free_all(&*self.inner, name).await;
        }
        self.inner.force_release(name, token).await
    }

    async fn note(&self, name: &LockName) -> Result<Note> {
        if matches!(self.flaw, Flaw::NoteIsReplaced | Flaw::NoteOfAnybody) {
            return Ok(self.shared.notes.lock().unwrap().get(name).cloned().unwrap_or_default());
        }
        self.inner.note(name).await
    }

    async fn time(&self) -> Result<SystemTime> {
        if self.flaw == Flaw::FrozenClock {
            Ok(SystemTime::UNIX_EPOCH + FROZEN)
        } else {
            self.inner.time().await
        }
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

async fn free_all(store: &dyn Backend, name: &LockName) -> Result<Released> {
    for token in store.inspect(name).await?.holders.iter().filter_map(|holder| holder.token) {
        store.force_release(name, token).await?;
    }
    Ok(Released::Freed)
}

#[derive(Debug)]
struct MutantClaim {
    inner: Box<dyn Claim>,
    backend: Arc<dyn Backend>,
    spec: ClaimSpec,
    flaw: Flaw,
    shared: Arc<Shared>,
    attempts: u32,
    noted: bool,
    renewals: u32,
    grant: Option<Grant>,
}

impl MutantClaim {
    async fn distort(&mut self, mut grant: Grant) -> Result<Grant> {
        match self.flaw {
            Flaw::ConstantToken => grant.token = FencingToken::new(7),
            Flaw::DeadlineFromReply => {
                tokio::time::sleep(Duration::from_millis(150)).await;
                grant.lease = Lease::Proven { at: self.spec.clock.now(), lasts: self.spec.ttl };
            }
            Flaw::TokenSharedByPermits => {
                let holders = self.backend.inspect(&self.spec.name).await?.holders;
                grant.token = holders.iter().find_map(|holder| holder.token).unwrap_or(grant.token);
            }
            Flaw::ExtendThatShortens => self.set_end(grant.token),
            _ => {}
        }
        Ok(grant)
    }

    #[expect(clippy::disallowed_methods, reason = "the flaw itself")]
    fn needs_its_home(&self) -> Result<()> {
        let home = self.shared.home.get_or_init(|| tokio::spawn(future::pending::<()>()));
        if home.is_finished() {
            return Err(Error::new(ErrorKind::Unavailable, "the runtime of the connection has gone"));
        }
        Ok(())
    }

    fn set_end(&self, token: FencingToken) {
        self.shared.ends.lock().unwrap().insert(token, Instant::now() + self.spec.ttl);
    }

    async fn end_what_is_over(&mut self) -> Result<()> {
        let now = Instant::now();
        let over: Vec<_> = self
            .shared
            .ends
            .lock()
            .unwrap()
            .extract_if(|_, end| *end <= now)
            .map(|(token, _)| token)
            .collect();
        for token in over {
            self.backend.force_release(&self.spec.name, token).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Claim for MutantClaim {
    async fn attempt(&mut self, mut wait: Wait) -> Result<Attempt> {
        self.attempts += 1;
        match (self.flaw, self.grant) {
            (Flaw::NoQueue, _) => wait = Wait::No,
            (Flaw::RetryReportsWholeLease, Some(grant)) => {
                return Ok(Attempt::Granted(Grant { lease: Lease::For(self.spec.ttl), ..grant }));
            }
            (Flaw::AttemptByAnotherOwner, _) => {
                self.spec.owner = OwnerId::random();
                self.inner = self.backend.claim(self.spec.clone())?;
            }
            (Flaw::ExtendThatShortens, _) => self.end_what_is_over().await?,
            (Flaw::OneRuntime, _) => self.needs_its_home()?,
            _ => {}
        }
        let answer = self.inner.attempt(wait).await;
        if self.flaw == Flaw::BlocksWhileAway && answer.is_err() {
            std::thread::sleep(SLOW);
        }
        match answer? {
            Attempt::Granted(grant) => {
                let grant = self.distort(grant).await?;
                self.grant = Some(grant);
                Ok(Attempt::Granted(grant))
            }
            // Woken is granted.
            Attempt::Busy { .. } if self.flaw == Flaw::NoRecheckAfterWait && self.attempts > 1 => {
                let token = FencingToken::new(u64::MAX / 2);
                Ok(Attempt::Granted(Grant { token, lease: Lease::For(self.spec.ttl) }))
            }
            busy => Ok(busy),
        }
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        let alive = Ok(Pulse::Alive(Lease::For(self.spec.ttl)));
        if self.flaw == Flaw::RenewalOfNothing || mem::take(&mut self.noted) {
            return alive;
        }
        if self.flaw == Flaw::FullRefusesRenewals && self.shared.full.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::StoreFull, "there is no room for the lease"));
        }
        if self.flaw == Flaw::SlowRenewal {
            tokio::time::sleep(SLOW).await;
        }
        self.renewals += 1;
        if self.flaw == Flaw::RenewsOnce && self.renewals > 1 {
            return Err(
                Error::new(ErrorKind::Unavailable, "the connection is used up").with_outcome_unknown()
            );
        }
        match (self.flaw, self.inner.keep_alive().await?) {
            (Flaw::ExtendThatShortens, pulse) => {
                self.grant.iter().for_each(|grant| self.set_end(grant.token));
                Ok(pulse)
            }
            (Flaw::LostRenewalIgnored, Pulse::Lost(_)) => alive,
            (Flaw::RenewalTellsWhatIsLeft, Pulse::Alive(Lease::For(left))) => {
                Ok(Pulse::Alive(Lease::For(left + *self.shared.later.lock().unwrap())))
            }
            (Flaw::RenewalRecreates, Pulse::Lost(lost)) => match self.inner.attempt(Wait::No).await? {
                Attempt::Granted(_) => alive,
                Attempt::Busy { .. } => Ok(Pulse::Lost(lost)),
            },
            (_, pulse) => Ok(pulse),
        }
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        let noted = self.inner.write_note(note).await?;
        self.noted = self.flaw == Flaw::NoteIsRenewal;
        let written = match self.flaw {
            Flaw::NoteIsReplaced => noted != Noted::NotHeld,
            Flaw::NoteOfAnybody => true,
            _ => return Ok(noted),
        };
        if !written {
            return Ok(noted);
        }
        self.shared.notes.lock().unwrap().insert(self.spec.name.clone(), note.clone());
        Ok(Noted::Written)
    }

    async fn release(&mut self) -> Result<Released> {
        if self.flaw == Flaw::OneRuntime {
            self.needs_its_home()?;
        }
        match self.flaw {
            Flaw::DeleteWithoutCompare => free_all(&*self.backend, &self.spec.name).await,
            Flaw::QueueEntryStays if self.grant.is_none() => Ok(Released::NotHeld),
            Flaw::ReleaseAlwaysFreed => self.inner.release().await.map(|_| Released::Freed),
            Flaw::BroadcastOnRelease => {
                let released = self.inner.release().await;
                self.shared.hints.lock().unwrap().iter().for_each(Hint::ring);
                released
            }
            _ => self.inner.release().await,
        }
    }
}
