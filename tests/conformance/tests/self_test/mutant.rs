//! A store with a flaw.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lockkit_conformance::{
    BoxError, Faults, Harness, Hook, Link, Store,
    faulty::Faulty,
    mutant::{Flaw, Mutation},
};
use lockkit_core::{
    LockName, Result,
    spi::{Backend, Descriptor},
};

/// Much later than the margin for drift.
const A_SLOW_REPLY: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct MutantStore<S> {
    pub(crate) right: S,
    pub(crate) flaw: Flaw,
}

#[async_trait]
impl<S: Store> Store for MutantStore<S> {
    fn name(&self) -> &str {
        "mutant"
    }

    fn descriptor(&self) -> Descriptor {
        let mut descriptor = self.right.descriptor();
        if self.flaw == Flaw::NoQueue {
            descriptor.capabilities.waiter_count = false;
        }
        descriptor
    }

    fn hooks(&self) -> Vec<Hook> {
        self.right.hooks()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        let right = self.right.open().await?;
        Ok(Box::new(MutantHarness { right, flaw: self.flaw, mutation: Mutation::new(self.flaw) }))
    }
}

#[derive(Debug)]
struct MutantHarness {
    right: Box<dyn Harness>,
    flaw: Flaw,
    mutation: Mutation,
}

#[async_trait]
impl Harness for MutantHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let mut right = self.right.connect().await?;
        if self.flaw == Flaw::DeadlineFromReply {
            let slow = Faulty::new(right);
            slow.line().set(Faults { reply_delay: A_SLOW_REPLY, ..Faults::NONE });
            right = Arc::new(slow);
        }
        Ok(self.mutation.wrap(right))
    }

    async fn connect_through_faults(&self) -> Result<(Arc<dyn Backend>, Arc<dyn Link>), BoxError> {
        let meets_errors = matches!(
            self.flaw,
            Flaw::BlocksWhileAway
                | Flaw::ReplyLostIsFailed
                | Flaw::SlowRenewalIgnored
                | Flaw::UnreleasedOnTrouble
        );
        if meets_errors {
            // The flaw is in front of the faults, so it meets their errors and their delays.
            let (right, link) = self.right.connect_through_faults().await?;
            return Ok((self.mutation.wrap(right), link));
        }
        let faulty = Faulty::new(self.connect().await?);
        let line = faulty.line();
        Ok((Arc::new(faulty), line))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        self.right.expire_now(name).await
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        self.right.leaks().await
    }

    async fn close(&self) {
        self.right.close().await;
    }

    fn parts(&self) -> Vec<Arc<dyn Link>> {
        self.right.parts()
    }

    async fn set_clock_back(&self, _: &LockName, by: Duration) -> Result<(), BoxError> {
        self.mutation.set_clock_back(by);
        Ok(())
    }

    async fn fill(&self) -> Result<(), BoxError> {
        self.mutation.set_full(true);
        Ok(())
    }

    async fn make_room(&self) -> Result<(), BoxError> {
        self.mutation.set_full(false);
        Ok(())
    }
}
