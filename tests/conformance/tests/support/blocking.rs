//! A store in which attempts wait, as on a server that has a statement for it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_conformance::{BoxError, Harness, Hook, Store, stores::MemoryStore};
use lockkit_core::{
    FencingToken, LockName, Result,
    spi::{
        Attempt, Backend, Claim, ClaimSpec, Descriptor, Grant, Hint, Inspection, Lease, Pulse, Released,
        Ring, Wait,
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Far more than a case gives a cancelled attempt to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The memory store forgets waiters that do not ask, and leases end in silence.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What may be wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockingFlaw {
    /// An attempt waits on when its caller has gone.
    IgnoresCaller,
    /// It answers when its caller has gone, and waits on in the store.
    LeavesItsPlace,
}

#[derive(Debug)]
pub(crate) struct BlockingStore(pub(crate) Option<BlockingFlaw>);

#[async_trait]
impl Store for BlockingStore {
    fn name(&self) -> &str {
        "blocking"
    }

    fn descriptor(&self) -> Descriptor {
        let mut descriptor = MemoryStore::new().descriptor().with_max_patience(PATIENCE);
        // A waiter stands in line for one attempt, and nobody is told anything between two.
        let capabilities = &mut descriptor.capabilities;
        (capabilities.fair, capabilities.push, capabilities.waiter_count) = (false, false, false);
        (capabilities.extend, capabilities.names) = (false, false);
        (capabilities.notes, capabilities.time) = (false, false);
        (capabilities.raise_fence, capabilities.reissue) = (false, false);
        descriptor
    }

    fn hooks(&self) -> Vec<Hook> {
        Vec::new()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let memory = MemoryStore::new().open().await?;
        Ok(Box::new(BlockingHarness { memory, flaw: self.0 }))
    }
}

#[derive(Debug)]
struct BlockingHarness {
    memory: Box<dyn Harness>,
    flaw: Option<BlockingFlaw>,
}

#[async_trait]
impl Harness for BlockingHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let (inner, flaw) = (self.memory.connect().await?, self.flaw);
        Ok(Arc::new(Blocking { inner, descriptor: BlockingStore(flaw).descriptor(), flaw }))
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
}

#[derive(Debug)]
struct Blocking {
    inner: Arc<dyn Backend>,
    descriptor: Descriptor,
    flaw: Option<BlockingFlaw>,
}

#[async_trait]
impl Backend for Blocking {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn claim(&self, mut spec: ClaimSpec) -> Result<Box<dyn Claim>> {
        let bell = Arc::new(Bell::default());
        spec.hint = Hint::to(&bell);
        let inner = self.inner.claim(spec.clone())?;
        Ok(Box::new(BlockingClaim { inner, spec, bell, flaw: self.flaw, left_its_place: false }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection> {
        self.inner.inspect(name).await
    }

    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released> {
        self.inner.force_release(name, token).await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}

/// Wakes the attempt, inside the store.
#[derive(Debug, Default)]
struct Bell(Notify);

impl Ring for Bell {
    fn ring(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[derive(Debug)]
struct BlockingClaim {
    inner: Box<dyn Claim>,
    spec: ClaimSpec,
    bell: Arc<Bell>,
    flaw: Option<BlockingFlaw>,
    left_its_place: bool,
}

impl BlockingClaim {
    async fn wait(&mut self, patience: Duration) -> Result<Attempt> {
        let stop = Instant::now() + patience;
        let deaf = self.flaw == Some(BlockingFlaw::IgnoresCaller);
        loop {
            let at = self.spec.clock.now();
            let retry_after = match self.inner.attempt(Wait::Queue).await? {
                Attempt::Granted(Grant { token, lease: Lease::For(lasts) }) => {
                    // Counted from before the wait, it might have ended.
                    return Ok(Attempt::Granted(Grant { token, lease: Lease::Proven { at, lasts } }));
                }
                granted @ Attempt::Granted(_) => return Ok(granted),
                Attempt::Busy { retry_after, .. } => retry_after,
            };
            let again = Instant::now() + retry_after.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
            let gone = tokio::select! {
                () = self.bell.0.notified() => false,
                () = self.spec.caller.gone(), if !deaf => true,
                () = sleep_until(again.min(stop)) => false,
            };
            if gone || Instant::now() >= stop {
                self.left_its_place = gone && self.flaw == Some(BlockingFlaw::LeavesItsPlace);
                self.release().await?;
                return Ok(Attempt::Busy { queued: false, retry_after });
            }
        }
    }
}

#[async_trait]
impl Claim for BlockingClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        match wait {
            Wait::Block(patience) => self.wait(patience).await,
            wait => self.inner.attempt(wait).await,
        }
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        self.inner.keep_alive().await
    }

    async fn release(&mut self) -> Result<Released> {
        if self.left_its_place {
            return Ok(Released::NotHeld);
        }
        self.inner.release().await
    }
}
