//! A store in which attempts wait, as on a server that has a statement for waiting.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    Result,
    spi::{
        Attempt, Claim, ClaimSpec, Descriptor, Grant, Lease, Released, RenewalOutcome, Wait, Wake,
        Wakeable,
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::altered::AlteredStore;

/// Far longer than the time that a case gives a cancelled attempt to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often an attempt asks again: the memory store forgets silent waiters, and leases end without
/// a wake-up.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The flaws that this store may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockingFlaw {
    /// An attempt continues to wait after its caller has dropped the call.
    IgnoresCaller,
    /// An attempt returns when its caller has dropped the call, but still waits in the store.
    LeavesItsPlace,
}

pub(crate) fn blocking(flaw: Option<BlockingFlaw>) -> AlteredStore {
    let describe = |memory: Descriptor| {
        let mut descriptor = Descriptor { max_patience: PATIENCE, ..memory };
        // A waiter is in the queue for one attempt, and hears nothing between two.
        let capabilities = &mut descriptor.capabilities;
        (capabilities.fair, capabilities.push, capabilities.waiter_count) = (false, false, false);
        (capabilities.extend, capabilities.notes) = (false, false);
        (capabilities.raise_token, capabilities.transfer) = (false, false);
        descriptor
    };
    AlteredStore::new("blocking", describe, move |memory, mut spec| {
        let signal = Arc::new(WakeSignal::default());
        spec.wake = Wake::to(&signal);
        let inner = memory.claim(spec.clone())?;
        Ok(Box::new(BlockingClaim { inner, spec, signal, flaw, left_its_place: false }))
    })
}

/// Wakes the attempt that waits inside the store.
#[derive(Debug, Default)]
struct WakeSignal(Notify);

impl Wakeable for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

#[derive(Debug)]
struct BlockingClaim {
    inner: Box<dyn Claim>,
    spec: ClaimSpec,
    signal: Arc<WakeSignal>,
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
                Attempt::Granted(Grant { token, lease: Lease::For(lasts), .. }) => {
                    // If it counted from before the wait, the lease might have ended already.
                    return Ok(Attempt::Granted(Grant::new(token, Lease::Proven { at, lasts })));
                }
                granted @ Attempt::Granted(_) => return Ok(granted),
                Attempt::Busy { retry_after, .. } => retry_after,
            };
            let again = Instant::now() + retry_after.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN);
            let gone = tokio::select! {
                () = self.signal.0.notified() => false,
                () = self.spec.caller.gone(), if !deaf => true,
                () = sleep_until(again.min(stop)) => false,
            };
            if gone || Instant::now() >= stop {
                self.left_its_place = gone && self.flaw == Some(BlockingFlaw::LeavesItsPlace);
                // The attempt leaves the queue. It held nothing that could be freed.
                let _ = self.release().await?;
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

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        self.inner.renew(lease).await
    }

    async fn release(&mut self) -> Result<Released> {
        if self.left_its_place {
            return Ok(Released::NotHeld);
        }
        self.inner.release().await
    }
}
