//! Harnesses of stores that need nothing else.

mod memory;
mod quorum;

pub use self::{memory::MemoryStore, quorum::QuorumStore};
