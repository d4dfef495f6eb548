//! A claim whose calls go through a line.

use std::{future, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, OwnerId, Result,
    spi::{
        Attachment, Attempt, Claim, ClaimSpec, Note, Noted, QueuePolicy, Released, RenewalOutcome,
        Transferred, Wait, Wake,
    },
};

use super::line::{Line, Op, WakeSignal};

#[derive(Debug)]
pub(super) struct FaultyClaim {
    inner: Box<dyn Claim>,
    line: Arc<Line>,
    /// The inner claim's [`Wake`] points to this signal, weakly.
    signal: Arc<WakeSignal>,
    owner: OwnerId,
}

impl FaultyClaim {
    pub(super) fn new(
        inner: Box<dyn Claim>,
        line: Arc<Line>,
        signal: Arc<WakeSignal>,
        owner: OwnerId,
    ) -> Self {
        line.claim_born();
        Self { inner, line, signal, owner }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Claim for FaultyClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.line.carry(Some(self.owner), Op::Attempt, self.inner.attempt(wait)).await
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<RenewalOutcome> {
        let op = if lease.is_none() { Op::KeepAlive } else { Op::Extend };
        self.line.carry(Some(self.owner), op, self.inner.renew(lease)).await
    }

    /// `None`, so that each renewal is a call, which a case can disturb.
    fn known_outcome(&mut self) -> Option<Result<RenewalOutcome>> {
        None
    }

    async fn release(&mut self) -> Result<Released> {
        self.line.carry(Some(self.owner), Op::Release, self.inner.release()).await
    }

    fn leave_grant(&mut self) {
        self.inner.leave_grant();
    }

    async fn raise_token(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        self.line.carry(Some(self.owner), Op::RaiseToken, self.inner.raise_token(floor)).await
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        self.line.carry(Some(self.owner), Op::WriteNote, self.inner.write_note(note)).await
    }

    async fn transfer(&mut self, to: &ClaimSpec, policy: QueuePolicy) -> Result<Transferred> {
        let signal = self.line.signal(to.wake.clone());
        let mut spec = to.clone();
        spec.wake = Wake::to(&signal);
        let transfer = self.inner.transfer(&spec, policy);
        let answer = self.line.carry(Some(self.owner), Op::Transfer, transfer).await;
        let is_new_owners = match &answer {
            Ok(answer) => matches!(answer, Transferred::Granted(_)),
            Err(error) => error.is_outcome_unknown(),
        };
        if is_new_owners {
            (self.signal, self.owner) = (signal, to.owner);
        }
        answer
    }

    fn attachment(&self) -> Option<Arc<dyn Attachment>> {
        self.inner.attachment()
    }

    async fn changed(&mut self) {
        if self.line.is_mute() {
            future::pending().await
        }
        self.inner.changed().await;
        self.line.woke();
    }
}

impl Drop for FaultyClaim {
    fn drop(&mut self) {
        self.line.claim_died();
    }
}
