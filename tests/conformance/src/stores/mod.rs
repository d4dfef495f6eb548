//! Harnesses of stores that need no server.

mod memory;
mod quorum;

pub use self::{memory::MemoryStore, quorum::QuorumStore};
