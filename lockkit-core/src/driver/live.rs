//! A claim object that is counted for as long as it lives, wherever it is.

use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;

use super::locker_state::LockerState;
use crate::{
    error::Result,
    spi::{
        Attachment, Attempt, Claim, ClaimSpec, Note, Noted, QueuePolicy, Released, RenewalOutcome,
        Transferred, Wait, bounded,
    },
};

/// A claim whose requests are bounded in time and whose panics are caught. A shutdown waits until
/// no such claim lives.
#[derive(Debug)]
pub(crate) struct LiveClaim {
    claim: Box<dyn Claim>,
    /// Dropped after the claim.
    _life: Life,
}

impl LiveClaim {
    pub(crate) fn new(claim: Box<dyn Claim>, life: Life) -> Self {
        Self { claim, _life: life }
    }

    pub(crate) async fn attempt(&mut self, wait: Wait, budget: Duration) -> Result<Attempt> {
        bounded(budget, self.claim.attempt(wait)).await
    }

    pub(crate) async fn renew(
        &mut self,
        lease: Option<Duration>,
        budget: Duration,
    ) -> Result<RenewalOutcome> {
        bounded(budget, self.claim.renew(lease)).await
    }

    /// After a panic here, the caller sends a request instead.
    pub(crate) fn known_outcome(&mut self) -> Option<Result<RenewalOutcome>> {
        catch_unwind(AssertUnwindSafe(|| self.claim.known_outcome())).ok().flatten()
    }

    pub(crate) async fn release(&mut self, budget: Duration) -> Result<Released> {
        bounded(budget, self.claim.release()).await
    }

    /// A panic here is ignored: at worst, the lease of the grant ends early.
    pub(crate) fn leave_grant(&mut self) {
        let _ = catch_unwind(AssertUnwindSafe(|| self.claim.leave_grant()));
    }

    pub(crate) async fn write_note(&mut self, note: &Note, budget: Duration) -> Result<Noted> {
        bounded(budget, self.claim.write_note(note)).await
    }

    pub(crate) async fn transfer(
        &mut self,
        to: &ClaimSpec,
        policy: QueuePolicy,
        budget: Duration,
    ) -> Result<Transferred> {
        bounded(budget, self.claim.transfer(to, policy)).await
    }

    /// A panic here means no attachment, and nothing else.
    pub(crate) fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        catch_unwind(AssertUnwindSafe(|| self.claim.attachment())).ok().flatten()
    }

    /// A watch that panics never completes again. The waiter still polls.
    pub(crate) async fn changed(&mut self) {
        if AssertUnwindSafe(self.claim.changed()).catch_unwind().await.is_err() {
            pending::<()>().await;
        }
    }
}

/// Counts a claim, from before it is made until it is dropped.
#[derive(Debug)]
pub(crate) struct Life(Arc<LockerState>);

impl Life {
    pub(crate) fn new(locker: Arc<LockerState>, ttl: Duration) -> Self {
        locker.claim_born(ttl);
        Self(locker)
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.claim_died();
    }
}
