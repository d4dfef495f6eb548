//! Defines the fake backend and its claims: five sorts of stores over one memory store.

use std::{
    future,
    ops::Deref,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio::time::{self, Instant};

use super::{
    orders::Op,
    store::{Store, WakeSignal, lock},
};
use crate::{
    clock::Clock,
    error::Result,
    name::{self, LockName},
    options::MAX_TTL,
    spi::{
        self, Admin, Attachment, Attempt, Backend, Capabilities, Claim, ClaimSpec, Descriptor,
        Diagnostic, Grant, Inspection, Lease, Noted, Poll, QueuePolicy, Released, RenewalOutcome,
        Role, Severity, Transferred, Wait, Wake,
    },
    token::{FencingToken, OwnerId},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Leases; waiters poll.
    Ttl,
    /// A queue and session leases; `changed()` wakes waiters.
    Queue,
    /// A queue and session leases; the store wakes waiters and holders.
    Push,
    /// Session leases; an attempt waits in the store.
    Pinned,
    /// The memory store with all its capabilities.
    Memory,
}

/// The sorts with few capabilities beside exclusive locks.
pub const KINDS: [Kind; 4] = [Kind::Ttl, Kind::Queue, Kind::Push, Kind::Pinned];

impl Kind {
    pub fn has_queue(self) -> bool {
        matches!(self, Self::Queue | Self::Push | Self::Memory)
    }

    fn has_leases(self) -> bool {
        matches!(self, Self::Ttl | Self::Memory)
    }

    fn descriptor(self, memory: &Descriptor) -> Descriptor {
        let few = Capabilities { exclusive: true, notes: true, ..Capabilities::NONE };
        let (capabilities, patience, min_poll, max_poll) = match self {
            Self::Ttl => (Capabilities { extend: true, ..few }, 0, 10, 200),
            Self::Queue | Self::Push => (few, 0, 5_000, 5_000),
            Self::Pinned => (few, 1_000, 1, 1),
            Self::Memory => {
                return Descriptor { capabilities: memory.capabilities, ..Descriptor::new("fake") };
            }
        };
        let ms = Duration::from_millis;
        Descriptor {
            capabilities,
            max_patience: ms(patience),
            poll: Poll { min: ms(min_poll), max: ms(max_poll) },
            ..Descriptor::new("fake")
        }
    }
}

/// A backend over a store that the test can reach as well.
#[derive(Clone, Debug)]
pub struct Fake {
    store: Arc<Store>,
    descriptor: Descriptor,
    kind: Kind,
    attaches: Option<Attaches>,
    /// The lease in the store, if it differs from the lease that the claim asks for.
    lasts: Option<Duration>,
}

/// The attachment that a fake gives beside the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attaches {
    Note,
    /// A note that panics when its guard is dropped or released.
    Bomb,
    /// Making the attachment panics, as a backend with a bug does.
    Panic,
    /// A note that needs a while to handle the drop of its guard.
    Slow,
}

/// Writes the drop of its guard to the store's log.
#[derive(Debug)]
pub struct Note {
    store: Arc<Store>,
    pub owner: OwnerId,
    attaches: Attaches,
}

impl Attachment for Note {
    fn guard_dropped(&self) {
        if self.attaches == Attaches::Slow {
            thread::sleep(Duration::from_millis(50));
        }
        self.store.record(Op::GuardDropped, self.owner);
        assert_ne!(self.attaches, Attaches::Bomb, "as ordered");
    }

    fn guard_released(&self) {
        assert_ne!(self.attaches, Attaches::Bomb, "as ordered");
    }
}

impl Deref for Fake {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Fake {
    pub fn new(store: Arc<Store>, kind: Kind) -> Self {
        let descriptor = kind.descriptor(store.memory.descriptor());
        // A session ends only by an order, so a session lease lasts for the whole test.
        let lasts = (!kind.has_leases()).then_some(MAX_TTL);
        Self { store, descriptor, kind, attaches: None, lasts }
    }

    /// Makes another backend over the same memory store, with its own orders and its own log.
    pub fn another_way(&self) -> Self {
        Self { store: Store::over(self.memory.clone()), ..self.clone() }
    }

    pub fn described(mut self, describe: impl FnOnce(Descriptor) -> Descriptor) -> Self {
        self.descriptor = describe(self.descriptor);
        self
    }

    /// Lets no grant end by itself during a test.
    pub fn lasting(mut self) -> Self {
        self.lasts = Some(MAX_TTL);
        self
    }

    /// Lets attempts wait in the store for as long as the core allows.
    pub fn with_endless_patience(self) -> Self {
        let poll = Duration::from_millis(1);
        self.described(|it| Descriptor {
            max_patience: Duration::MAX,
            poll: Poll { min: poll, max: Duration::MAX },
            ..it
        })
    }

    /// Claims fairness.
    pub fn with_fair(mut self) -> Self {
        self.descriptor.capabilities = Capabilities { fair: true, ..self.descriptor.capabilities };
        self
    }

    /// Claims transfers inside the process.
    pub fn with_transfer(mut self) -> Self {
        self.descriptor.capabilities =
            Capabilities { transfer: true, ..self.descriptor.capabilities };
        self
    }

    pub fn with_attachment(mut self, attaches: Attaches) -> Self {
        self.attaches = Some(attaches);
        self
    }

    /// The spec of a claim, as the memory store gets it.
    fn told(&self, spec: &ClaimSpec) -> ClaimSpec {
        let mut told = spec.clone();
        told.ttl = self.lasts.unwrap_or(spec.ttl);
        if self.kind != Kind::Memory {
            // The leases of the memory store run on tokio's clock, whatever clock the locker has.
            told.clock = Clock::Tokio;
            told.wake = Wake::none();
        }
        told
    }

    /// The lease that the fake reports for a lease of the memory store.
    fn lease(&self, lease: Lease) -> Lease {
        let own = if self.kind.has_leases() { lease } else { Lease::Session };
        lock(&self.orders).lease.unwrap_or(own)
    }

    fn outcome(&self, outcome: RenewalOutcome) -> RenewalOutcome {
        if let RenewalOutcome::Alive(lease) = outcome {
            RenewalOutcome::Alive(self.lease(lease))
        } else {
            outcome
        }
    }
}

const NOBODY: OwnerId = OwnerId::new(0);

#[async_trait]
impl Backend for Fake {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let mut told = self.told(&spec);
        let signal = Arc::new(WakeSignal { store: Arc::downgrade(&self.store), owner: spec.owner });
        if self.kind == Kind::Push {
            told.wake = Wake::to(&signal);
        }
        let inner = self.memory.claim(told)?;
        self.claims.fetch_add(1, SeqCst);
        lock(&self.callers).push(spec.caller.clone());
        Ok(Box::new(FakeClaim { fake: self.clone(), spec, inner, _signal: signal }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        let look = async {
            let shown = lock(&self.orders).shown.clone();
            if let Some(shown) = shown { Ok(shown) } else { self.memory.inspect(name).await }
        };
        self.play(Op::Inspect, NOBODY, look).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let free = async {
            let released = self.memory.force_release(name, token).await;
            self.signal.notify_waiters();
            released
        };
        self.play(Op::ForceRelease, NOBODY, free).await
    }

    fn admin(&self) -> Option<&dyn Admin> {
        Some(self)
    }

    async fn changed(&self, _: &LockName) {
        self.signal.notified().await;
    }

    async fn close(&self) -> Result<()> {
        let close = async {
            lock(&self.claims_at_close).push(self.live_claims());
            Ok(())
        };
        self.play(Op::Close, NOBODY, close).await
    }
}

#[async_trait]
impl Admin for Fake {
    async fn probe(&self) -> Result<Role> {
        self.play(Op::Other, NOBODY, self.memory.probe()).await
    }

    async fn names(&self, kind: name::Kind, prefix: &str) -> Result<Vec<LockName>> {
        self.play(Op::Other, NOBODY, self.memory.names(kind, prefix)).await
    }

    async fn note(&self, name: &LockName) -> Result<spi::Note> {
        self.play(Op::ReadNote, NOBODY, self.memory.note(name)).await
    }

    async fn time(&self) -> Result<SystemTime> {
        self.play(Op::Other, NOBODY, self.memory.time()).await
    }

    async fn diagnose(&self) -> Result<Vec<Diagnostic>> {
        let diagnostics = async { Ok(vec![Diagnostic::new(Severity::Weak, "disk", "full")]) };
        self.play(Op::Other, NOBODY, diagnostics).await
    }
}

#[derive(Debug)]
struct FakeClaim {
    fake: Fake,
    spec: ClaimSpec,
    inner: Box<dyn Claim>,
    /// Keeps the signal alive, because the [`Wake`] of the inner claim is weak.
    _signal: Arc<WakeSignal>,
}

/// Competes for a lock. Where attempts wait inside the store, this waits for as long as the core
/// allows.
async fn compete(
    fake: &Fake,
    spec: &ClaimSpec,
    inner: &mut dyn Claim,
    wait: Wait,
) -> Result<Attempt> {
    let patience = if let Wait::Block(patience) = wait { patience } else { Duration::ZERO };
    let stop = Instant::now() + patience.min(MAX_TTL);
    let _waits = (!patience.is_zero()).then(|| fake.waits());
    let wait = if fake.kind.has_queue() { wait } else { Wait::No };
    loop {
        let signal = fake.signal.notified();
        if fake.kind == Kind::Push {
            fake.listen(spec);
        }
        let answer = inner.attempt(wait).await?;
        if let Attempt::Busy { queued: false, .. } = answer {
            fake.ignore(spec.owner);
        }
        match answer {
            Attempt::Granted(Grant { token, lease, .. }) => {
                return Ok(Attempt::Granted(Grant::new(token, fake.lease(lease))));
            }
            Attempt::Busy { .. } if fake.kind == Kind::Memory => return Ok(answer),
            Attempt::Busy { queued, .. } if Instant::now() >= stop => {
                return Ok(Attempt::Busy { queued, retry_after: None });
            }
            Attempt::Busy { .. } => {}
        }
        tokio::select! {
            _ = time::timeout_at(stop, signal) => {}
            () = spec.caller.gone() => return Ok(Attempt::Busy { queued: false, retry_after: None }),
        }
    }
}

#[async_trait]
impl Claim for FakeClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        let Self { fake, spec, inner, .. } = self;
        fake.play(Op::Attempt, spec.owner, compete(fake, spec, &mut **inner, wait)).await
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        let Self { fake, spec, inner, .. } = self;
        let renew = async {
            if lock(&fake.orders).dead_shard && spec.name.as_str().starts_with("dead") {
                future::pending::<()>().await;
            }
            inner.renew(lease).await
        };
        let op = if lease.is_none() { Op::KeepAlive } else { Op::Extend };
        Ok(fake.outcome(fake.play(op, spec.owner, renew).await?))
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        self.fake.play(Op::RaiseToken, self.spec.owner, self.inner.raise_token(floor)).await
    }

    async fn release(&mut self) -> Result<Released> {
        let Self { fake, spec, inner, .. } = self;
        let leave = async {
            let released = inner.release().await;
            fake.forget(spec.owner);
            released
        };
        fake.play(Op::Release, spec.owner, leave).await
    }

    async fn write_note(&mut self, note: &spi::Note) -> Result<Noted> {
        self.fake.play(Op::WriteNote, self.spec.owner, self.inner.write_note(note)).await
    }

    /// The memory store's claim always knows which of the two owners has the lock.
    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let Self { fake, spec, inner, .. } = self;
        lock(&fake.policies).push(policy);
        *lock(&fake.successor) = Some(to.wake.clone());
        let previous = std::mem::replace(spec, to.clone());
        let transfer = async {
            if policy == QueuePolicy::QueueFirst {
                // The fake does not know whether another claim waits, so it frees the lock.
                let released = inner.release().await?;
                fake.forget(previous.owner);
                return Ok(match released {
                    Released::Freed => Transferred::Yielded,
                    Released::NotHeld => Transferred::NotHeld,
                });
            }
            inner.transfer(&fake.told(to), policy).await
        };
        match fake.play(Op::Transfer, previous.owner, transfer).await? {
            Transferred::Granted(Grant { token, lease, .. }) => {
                Ok(Transferred::Granted(Grant::new(token, fake.lease(lease))))
            }
            other => Ok(other),
        }
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        let attaches = self.fake.attaches?;
        let owner = self.spec.owner;
        self.fake.record(Op::Attachment, owner);
        assert_ne!(attaches, Attaches::Panic, "as ordered");
        Some(Arc::new(Note { store: Arc::clone(&self.fake.store), owner, attaches }))
    }

    async fn changed(&mut self) {
        if self.fake.kind == Kind::Queue {
            // The wait starts before the request is sent, so that no change on the way is missed.
            let woken = self.fake.signal.notified();
            let _ = self.fake.play(Op::Changed, self.spec.owner, woken.map(Ok)).await;
        } else {
            future::pending().await
        }
    }
}

impl Drop for FakeClaim {
    fn drop(&mut self) {
        self.fake.claims.fetch_sub(1, SeqCst);
    }
}
