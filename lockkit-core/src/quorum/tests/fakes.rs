//! Members that do as they are told, on tokio's clock.

use std::{
    future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::time;

use crate::{
    Clock, Error, ErrorKind, FencingToken, Kind, LockName, Memory, Need, OwnerId, Quorum, Result,
    spi::{
        Attempt, Backend, Capabilities, Claim, ClaimSpec, Descriptor, Finding, Grade, Inspection, LeaseScope,
        Mode, Pulse, Released, Role, Wait,
    },
};

pub(super) const TTL: Duration = Duration::from_secs(30);
pub(super) const OP_TIMEOUT: Duration = Duration::from_secs(2);
/// Longer than any test.
const LASTING: Duration = crate::MAX_TTL;
/// What each fake gave before.
const LAST_TOKEN: u64 = 1_000_000;

pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Attempt,
    KeepAlive,
    Raise,
    Release,
    Look,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Pass,
    /// Applied and answered this much later.
    Late(Duration),
    /// Applied at once, answered this much later.
    SlowReply(Duration),
    /// Not applied, and no answer.
    Silent,
    /// Applied, and no answer.
    LostReply,
    /// An error at once; nothing was applied.
    Down,
    /// A permanent error.
    Denied,
}

#[derive(Debug)]
struct Script {
    acts: Vec<(Op, Act)>,
    default: Act,
    log: Vec<(Op, OwnerId)>,
}

/// A memory store with a script before it.
#[derive(Clone, Debug)]
pub(super) struct Fake {
    pub(super) memory: Memory,
    script: Arc<Mutex<Script>>,
    descriptor: Descriptor,
    /// The lease of its grants, if that is not the claim's ttl.
    lease: Option<Duration>,
}

impl Fake {
    pub(super) fn new() -> Self {
        // Whoever is ahead of whom is for the test to say, and not for how long it takes to make them.
        let memory = Memory::with_tokens_after(Clock::Tokio, LAST_TOKEN);
        let descriptor = Descriptor::new("fake").with_capabilities(memory.descriptor().capabilities);
        let script = Script { acts: Vec::new(), default: Act::Pass, log: Vec::new() };
        Self { memory, script: Arc::new(Mutex::new(script)), descriptor, lease: None }
    }

    pub(super) fn on_boot_clock() -> Self {
        Self { memory: Memory::new(), ..Self::new() }
    }

    pub(super) fn described(mut self, describe: impl FnOnce(Descriptor) -> Descriptor) -> Self {
        self.descriptor = describe(self.descriptor);
        self
    }

    pub(super) fn without_raise(self) -> Self {
        self.described(|it| it.with_capabilities(Capabilities::none().with_exclusive()))
    }

    /// As a store without leases: no grant ends by itself during a test.
    pub(super) fn lasting(self) -> Self {
        // What was left there is taken back, however long that takes.
        let lasting = self.described(|it| it.with_lease_scope(LeaseScope::Session));
        Self { lease: Some(LASTING), ..lasting }
    }

    /// The same store, reached by another way, which has a script of its own.
    pub(super) fn another_way(&self) -> Self {
        let Self { memory, descriptor, lease, .. } = self.clone();
        Self { memory, descriptor, lease, ..Self::new() }
    }

    /// From now on, for all requests.
    pub(super) fn all(&self, act: Act) {
        self.script(|script| (script.default, script.acts) = (act, Vec::new()));
    }

    /// From now on, for requests of this kind.
    pub(super) fn on(&self, op: Op, act: Act) {
        self.script(|script| {
            script.acts.retain(|(of, _)| *of != op);
            script.acts.push((op, act));
        });
    }

    pub(super) fn count(&self, op: Op) -> usize {
        self.script(|script| script.log.iter().filter(|(of, _)| *of == op).count())
    }

    pub(super) fn owners(&self) -> Vec<OwnerId> {
        self.script(|script| {
            script.log.iter().filter(|(op, _)| *op == Op::Attempt).map(|(_, owner)| *owner).collect()
        })
    }

    /// The larger tokens that this member gives from now on.
    pub(super) async fn advance(&self, grants: usize) {
        for _ in 0..grants {
            let mut claim = self.memory.claim(spec("other")).unwrap();
            claim.attempt(Wait::No).await.unwrap();
            claim.release().await.unwrap();
        }
    }

    fn script<T>(&self, work: impl FnOnce(&mut Script) -> T) -> T {
        work(&mut self.script.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn play<T>(&self, op: Op, owner: OwnerId, request: impl Future<Output = Result<T>>) -> Result<T> {
        let act = self.script(|script| {
            script.log.push((op, owner));
            script.acts.iter().find(|(of, _)| *of == op).map_or(script.default, |(_, act)| *act)
        });
        match act {
            Act::Pass => request.await,
            Act::Late(delay) => {
                time::sleep(delay).await;
                request.await
            }
            Act::SlowReply(delay) => {
                let answer = request.await;
                time::sleep(delay).await;
                answer
            }
            Act::Silent => future::pending().await,
            Act::LostReply => {
                let _ = request.await;
                future::pending().await
            }
            Act::Down => Err(Error::new(ErrorKind::Unavailable, "connection refused")),
            Act::Denied => Err(Error::new(ErrorKind::PermissionDenied, "not for you")),
        }
    }
}

#[async_trait]
impl Backend for Fake {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, mut spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let owner = spec.owner;
        spec.ttl = self.lease.unwrap_or(spec.ttl);
        Ok(Box::new(FakeClaim { fake: self.clone(), owner, claim: self.memory.claim(spec)? }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.play(Op::Look, OwnerId::new(0), self.memory.inspect(name)).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.play(Op::Release, OwnerId::new(0), self.memory.force_release(name, token)).await
    }

    async fn probe(&self) -> Result<Role> {
        self.play(Op::Look, OwnerId::new(0), self.memory.probe()).await
    }

    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>> {
        self.play(Op::Look, OwnerId::new(0), self.memory.names(kind, prefix)).await
    }

    async fn diagnose(&self) -> Result<Vec<Finding>> {
        let findings = async { Ok(vec![Finding::new(Grade::Weak, "disk", "full")]) };
        self.play(Op::Look, OwnerId::new(0), findings).await
    }

    async fn close(&self) -> Result<()> {
        self.play(Op::Look, OwnerId::new(0), self.memory.close()).await
    }
}

#[derive(Debug)]
struct FakeClaim {
    fake: Fake,
    owner: OwnerId,
    claim: Box<dyn Claim>,
}

#[async_trait]
impl Claim for FakeClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.fake.play(Op::Attempt, self.owner, self.claim.attempt(wait)).await
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        self.fake.play(Op::KeepAlive, self.owner, self.claim.keep_alive()).await
    }

    async fn release(&mut self) -> Result<Released> {
        self.fake.play(Op::Release, self.owner, self.claim.release()).await
    }

    async fn extend(&mut self, lease: Duration) -> Result<Pulse> {
        self.fake.play(Op::KeepAlive, self.owner, self.claim.extend(lease)).await
    }

    async fn raise_fence(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        self.fake.play(Op::Raise, self.owner, self.claim.raise_fence(floor)).await
    }
}

pub(super) fn fakes(count: usize) -> Vec<Fake> {
    (0..count).map(|_| Fake::new()).collect()
}

pub(super) fn quorum(fakes: &[Fake]) -> Quorum {
    of(fakes, Need::Majority)
}

pub(super) fn of(fakes: &[Fake], need: Need) -> Quorum {
    try_of(fakes, need).unwrap()
}

pub(super) fn try_of(fakes: &[Fake], need: Need) -> Result<Quorum> {
    Quorum::with_need(fakes.iter().map(|fake| -> Arc<dyn Backend> { Arc::new(fake.clone()) }).collect(), need)
}

pub(super) fn name() -> LockName {
    LockName::new(Kind::Mutex, "x").unwrap()
}

pub(super) fn spec(name: &str) -> ClaimSpec {
    let name = LockName::new(Kind::Mutex, name).unwrap();
    let mut spec = ClaimSpec::new(name, OwnerId::random(), Mode::Exclusive, TTL, OP_TIMEOUT);
    spec.clock = Clock::Tokio;
    spec
}

/// A lock of somebody else at this member.
pub(super) async fn occupy(fake: &Fake) -> Box<dyn Claim> {
    let mut claim = fake.memory.claim(spec("x")).unwrap();
    assert!(matches!(claim.attempt(Wait::No).await.unwrap(), Attempt::Granted(_)));
    claim
}

/// The token and who holds it at each member, behind its script.
pub(super) async fn shown(fakes: &[Fake]) -> Vec<Option<(OwnerId, FencingToken)>> {
    let mut shown = Vec::new();
    for fake in fakes {
        let seen = fake.memory.inspect(&name()).await.unwrap();
        shown.push(seen.holders.first().map(|holder| (holder.owner.unwrap(), holder.token.unwrap())));
    }
    shown
}
