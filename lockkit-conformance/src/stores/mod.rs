//! Harnesses of stores that need nothing else.

mod memory;

pub use self::memory::MemoryStore;
