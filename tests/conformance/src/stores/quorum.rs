//! A quorum of embedded memory stores.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{
    LockName, Memory,
    spi::{Backend, Descriptor},
};
use lockkit_quorum::{Need, Quorum};

use crate::{
    faulty::Faulty,
    harness::{BoxError, Faults, Harness, Hook, Link, Store, free_all},
    mutant::{Flaw, Mutation},
    wait::ms,
};

/// Several memory stores of which a majority, or all, must grant; new ones for each case.
#[derive(Clone, Debug)]
pub struct QuorumStore {
    name: String,
    members: usize,
    need: Need,
    flaw: Option<Flaw>,
}

impl QuorumStore {
    /// A quorum of this many members.
    #[must_use]
    pub fn new(members: usize, need: Need) -> Self {
        Self { name: format!("quorum-{need}-of-{members}"), members, need, flaw: None }
    }

    /// Puts a flaw into the quorum and into each of its members.
    #[doc(hidden)]
    #[must_use]
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    fn harness(&self) -> QuorumHarness {
        let members = (0..self.members).map(|place| {
            let memory = Memory::new();
            let mut member: Arc<dyn Backend> = Arc::new(memory.clone());
            if let Some(flaw) = self.flaw {
                member = Mutation::new(flaw).wrap(member);
            }
            let faulty = Faulty::new(member);
            faulty.line().set(stagger(place));
            (memory, Arc::new(faulty))
        });
        QuorumHarness { members: members.collect(), need: self.need, flaw: self.flaw }
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
        vec![Hook::Parts]
    }

    async fn open(&self) -> Result<Box<dyn Harness>, BoxError> {
        Ok(Box::new(self.harness()))
    }
}

/// The member stores, and the link to each.
#[derive(Debug)]
struct QuorumHarness {
    members: Vec<(Memory, Arc<Faulty>)>,
    need: Need,
    flaw: Option<Flaw>,
}

impl QuorumHarness {
    fn members(&self) -> Vec<Arc<dyn Backend>> {
        self.members
            .iter()
            .map(|(_, faulty)| -> Arc<dyn Backend> { Arc::<Faulty>::clone(faulty) })
            .collect()
    }

    fn quorum(&self) -> Result<Quorum, BoxError> {
        Ok(Quorum::with_need(self.members(), self.need)?)
    }
}

/// From the third member on, the members answer late, each with another delay, so that their
/// answers come one after the other.
fn stagger(place: usize) -> Faults {
    let (request_delay, reply_delay) = match place {
        0 | 1 => (ms(0), ms(0)),
        2 => (ms(0), ms(1)),
        3 => (ms(1), ms(0)),
        _ => (ms(1), ms(1)),
    };
    Faults { request_delay, reply_delay, ..Faults::NONE }
}

#[async_trait]
impl Harness for QuorumHarness {
    async fn connect(&self) -> Result<Arc<dyn Backend>, BoxError> {
        let quorum = Arc::new(self.quorum()?);
        Ok(match self.flaw {
            Some(flaw) => Mutation::new(flaw).wrap_whole(quorum, self.members()),
            None => quorum,
        })
    }

    async fn expire_now(&self, name: &LockName) -> Result<(), BoxError> {
        for (member, _) in &self.members {
            free_all(member, name).await?;
        }
        Ok(())
    }

    async fn leaks(&self) -> Result<Vec<String>, BoxError> {
        let left = self.members.iter().map(|(member, _)| member).enumerate();
        let left = left.filter(|(_, member)| !member.is_empty());
        Ok(left
            .map(|(place, member)| {
                format!("member {}: {} names are not idle", place + 1, member.len())
            })
            .collect())
    }

    fn parts(&self) -> Vec<Arc<dyn Link>> {
        self.members.iter().map(|(_, faulty)| -> Arc<dyn Link> { faulty.line() }).collect()
    }

    async fn close(&self) {}
}
