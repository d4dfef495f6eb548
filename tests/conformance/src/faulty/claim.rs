//! A claim behind a line.

use std::{future, sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, OwnerId, Result,
    spi::{
        Attachment, Attempt, Claim, ClaimSpec, Hint, Note, Noted, Outsiders, Pulse, Reissued,
        Released, Wait,
    },
};

use super::line::{Bell, Line, Op};

#[derive(Debug)]
pub(super) struct FaultyClaim {
    inner: Box<dyn Claim>,
    line: Arc<Line>,
    /// The inner claim's hint points to it, weakly.
    bell: Arc<Bell>,
    owner: OwnerId,
}

impl FaultyClaim {
    pub(super) fn new(
        inner: Box<dyn Claim>,
        line: Arc<Line>,
        bell: Arc<Bell>,
        owner: OwnerId,
    ) -> Self {
        line.claim_born();
        Self { inner, line, bell, owner }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Claim for FaultyClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.line.carry(Some(self.owner), Op::Attempt, self.inner.attempt(wait)).await
    }

    async fn renew(&mut self, lease: Option<Duration>) -> Result<Pulse> {
        let op = if lease.is_none() { Op::KeepAlive } else { Op::Extend };
        self.line.carry(Some(self.owner), op, self.inner.renew(lease)).await
    }

    /// Each renewal is a call, which a case can disturb.
    fn known_pulse(&mut self) -> Option<Result<Pulse>> {
        None
    }

    async fn release(&mut self) -> Result<Released> {
        self.line.carry(Some(self.owner), Op::Release, self.inner.release()).await
    }

    async fn raise_fence(&mut self, floor: FencingToken) -> Result<Option<FencingToken>> {
        self.line.carry(Some(self.owner), Op::RaiseFence, self.inner.raise_fence(floor)).await
    }

    async fn write_note(&mut self, note: &Note) -> Result<Noted> {
        self.line.carry(Some(self.owner), Op::WriteNote, self.inner.write_note(note)).await
    }

    async fn reissue(&mut self, to: &ClaimSpec, outsiders: Outsiders) -> Result<Reissued> {
        let bell = self.line.bell(to.hint.clone());
        let mut spec = to.clone();
        spec.hint = Hint::to(&bell);
        let reissue = self.inner.reissue(&spec, outsiders);
        let answer = self.line.carry(Some(self.owner), Op::Reissue, reissue).await;
        let is_new_owners = match &answer {
            Ok(answer) => matches!(answer, Reissued::Granted(_)),
            Err(error) => error.is_outcome_unknown(),
        };
        if is_new_owners {
            (self.bell, self.owner) = (bell, to.owner);
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
