//! A claim behind a line.

use std::{future, sync::Arc};

use async_trait::async_trait;
use lockkit_core::{
    OwnerId, Result,
    spi::{Attachment, Attempt, Claim, Pulse, Released, Wait},
};

use super::line::{Bell, Line, Op};

#[derive(Debug)]
pub(super) struct FaultyClaim {
    inner: Box<dyn Claim>,
    line: Arc<Line>,
    /// The inner claim's hint points to it, weakly.
    _bell: Arc<Bell>,
    owner: OwnerId,
}

impl FaultyClaim {
    pub(super) fn new(inner: Box<dyn Claim>, line: Arc<Line>, bell: Arc<Bell>, owner: OwnerId) -> Self {
        line.claim_born();
        Self { inner, line, _bell: bell, owner }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Claim for FaultyClaim {
    async fn attempt(&mut self, wait: Wait) -> Result<Attempt> {
        self.line.carry(Some(self.owner), Op::Attempt, self.inner.attempt(wait)).await
    }

    async fn keep_alive(&mut self) -> Result<Pulse> {
        self.line.carry(Some(self.owner), Op::KeepAlive, self.inner.keep_alive()).await
    }

    async fn release(&mut self) -> Result<Released> {
        self.line.carry(Some(self.owner), Op::Release, self.inner.release()).await
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
