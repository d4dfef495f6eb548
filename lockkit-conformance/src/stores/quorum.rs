//! A quorum of embedded memory stores.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{
    LockName, Memory, Need, Quorum,
    spi::{Backend, Descriptor},
};

use crate::{
    faulty::Faulty,
    harness::{BoxError, Faults, Harness, Hook, Link as _, Store},
    wait::ms,
};

/// Several memory stores of which a majority, or all, must grant; new ones for each case.
#[derive(Clone, Debug)]
pub struct QuorumStore {
    name: String,
    members: usize,
    need: Need,
}

impl QuorumStore {
    /// A quorum of so many members.
    #[must_use]
    pub fn new(members: usize, need: Need) -> Self {
        Self { name: format!("quorum-{need}-of-{members}"), members, need }
    }

    fn harness(&self) -> QuorumHarness {
        QuorumHarness { members: (0..self.members).map(|_| Memory::new()).collect(), need: self.need }
    }
}

#[async_trait]
impl Store for QuorumStore {
    fn name(&self) -> &str {
        &self.name
    }

    fn descriptor(&self) -> Descriptor {
        self.harness().quorum().expect("memory stores can be members").descriptor().clone()
    }

    fn hooks(&self) -> Vec<Hook> {
        Vec::new()
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(self.harness()))
    }
}

#[derive(Debug)]
struct QuorumHarness {
    members: Vec<Memory>,
    need: Need,
}

impl QuorumHarness {
    fn quorum(&self) -> Result<Quorum, BoxError> {
        let members = self.members.iter().enumerate().map(|(place, memory)| staggered(place, memory.clone()));
        Ok(Quorum::with_need(members.collect(), self.need)?)
    }
}

/// From the third on members answer late: each in a way of its own, so that their answers come one after the other.
fn staggered(place: usize, memory: Memory) -> Arc<dyn Backend> {
    let (request_delay, reply_delay) = match place {
        0 | 1 => return Arc::new(memory),
        2 => (ms(0), ms(1)),
        3 => (ms(1), ms(0)),
        _ => (ms(1), ms(1)),
    };
    let faulty = Faulty::new(Arc::new(memory));
    faulty.line().set(Faults { request_delay, reply_delay, ..Faults::NONE });
    Arc::new(faulty)
}

#[async_trait]
impl Harness for QuorumHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        Ok(Arc::new(self.quorum()?))
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        for member in &self.members {
            for holder in member.inspect(name).await?.holders {
                if let Some(token) = holder.token {
                    member.force_release(name, token).await?;
                }
            }
        }
        Ok(())
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let left = self.members.iter().enumerate().filter(|(_, member)| !member.is_empty());
        Ok(left
            .map(|(place, member)| format!("member {}: {} names are not idle", place + 1, member.len()))
            .collect())
    }

    async fn close(&self) {}
}
