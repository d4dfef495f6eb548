//! A quorum of three memory stores, with a flaw.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Link, Store, faulty::Faulty};
use lockkit_core::{
    FencingToken, LockName, Memory, Quorum, Result,
    spi::{Attempt, Backend, Claim, ClaimSpec, Descriptor, Inspection, Pulse, Released, Wait},
};
use tokio::time::timeout;

const MEMBERS: usize = 3;
/// A member that is not silent answers within this time.
const PROMPT: Duration = Duration::from_millis(800);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartsFlaw {
    /// An observer hears one member, the last one that answers.
    LooksAtOneMember,
    /// The members are not raised to the token of the grant.
    NeverRaised,
    /// What can't be told is called free.
    UnclearIsFree,
}

/// The store, right or with a flaw.
#[derive(Debug)]
pub(crate) struct PartsStore(pub(crate) Option<PartsFlaw>);

impl PartsStore {
    fn harness(&self) -> PartsHarness {
        let members = (0..MEMBERS).map(|_| {
            // Its tokens begin with the time, and so far apart that no member has those of another one.
            std::thread::sleep(Duration::from_millis(1));
            let memory = Memory::new();
            let member = PartsMember { memory: memory.clone(), flaw: self.0 };
            (memory, Arc::new(Faulty::new(Arc::new(member))))
        });
        PartsHarness { members: members.collect(), flaw: self.0 }
    }
}

#[async_trait]
impl Store for PartsStore {
    fn name(&self) -> &str {
        "parts"
    }

    fn descriptor(&self) -> Descriptor {
        self.harness().quorum().descriptor().clone()
    }

    fn hooks(&self) -> Vec<Hook> {
        vec![Hook::Parts]
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(self.harness()))
    }
}

#[derive(Debug)]
struct PartsHarness {
    members: Vec<(Memory, Arc<Faulty>)>,
    flaw: Option<PartsFlaw>,
}

impl PartsHarness {
    fn quorum(&self) -> Quorum {
        let members =
            self.members.iter().map(|(_, faulty)| -> Arc<dyn Backend> { Arc::<Faulty>::clone(faulty) });
        Quorum::new(members.collect()).unwrap()
    }
}

#[async_trait]
impl Harness for PartsHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let members = self.members.iter().map(|(_, faulty)| Arc::clone(faulty)).collect();
        Ok(Arc::new(PartsBackend { quorum: self.quorum(), members, flaw: self.flaw }))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        for (member, _) in &self.members {
            for token in member.inspect(name).await?.holders.iter().filter_map(|holder| holder.token) {
                member.force_release(name, token).await?;
            }
        }
        Ok(())
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let left = self.members.iter().filter(|(member, _)| !member.is_empty());
        Ok(left.map(|(member, _)| format!("{} names are not idle", member.len())).collect())
    }

    fn parts(&self) -> Vec<Arc<dyn Link>> {
        self.members.iter().map(|(_, faulty)| -> Arc<dyn Link> { faulty.line() }).collect()
    }

    async fn close(&self) {}
}

#[derive(Debug)]
struct PartsBackend {
    quorum: Quorum,
    members: Vec<Arc<Faulty>>,
    flaw: Option<PartsFlaw>,
}

#[async_trait]
impl Backend for PartsBackend {
    fn descriptor(&self) -> &Descriptor {
        self.quorum.descriptor()
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        self.quorum.claim(spec)
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        if self.flaw == Some(PartsFlaw::LooksAtOneMember) {
            for member in self.members.iter().rev() {
                if let Ok(Ok(seen)) = timeout(PROMPT, member.inspect(name)).await {
                    return Ok(seen);
                }
            }
        }
        let seen = self.quorum.inspect(name).await;
        if self.flaw == Some(PartsFlaw::UnclearIsFree) { Ok(seen.unwrap_or_default()) } else { seen }
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        let released = self.quorum.force_release(name, token).await;
        if self.flaw == Some(PartsFlaw::UnclearIsFree) {
            return Ok(released.unwrap_or(Released::NotHeld));
        }
        released
    }

    async fn close(&self) -> Result<()> {
        self.quorum.close().await
    }
}

#[derive(Debug)]
struct PartsMember {
    memory: Memory,
    flaw: Option<PartsFlaw>,
}

#[async_trait]
impl Backend for PartsMember {
    fn descriptor(&self) -> &Descriptor {
        self.memory.descriptor()
    }

    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        Ok(Box::new(PartsClaim { inner: self.memory.claim(spec)?, flaw: self.flaw }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.memory.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.memory.force_release(name, token).await
    }

    async fn close(&self) -> Result<()> {
        self.memory.close().await
    }
}

#[derive(Debug)]
struct PartsClaim {
    inner: Box<dyn Claim>,
    flaw: Option<PartsFlaw>,
}

#[async_trait]
impl Claim for PartsClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.inner.attempt(wait).await
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        self.inner.keep_alive().await
    }

    async fn extend(&mut self, lease: Duration) -> Result<Pulse> {
        self.inner.extend(lease).await
    }

    async fn raise_fence(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        if self.flaw == Some(PartsFlaw::NeverRaised) {
            return Ok(Some(floor));
        }
        self.inner.raise_fence(floor).await
    }

    async fn release(&mut self) -> Result<Released> {
        self.inner.release().await
    }
}
