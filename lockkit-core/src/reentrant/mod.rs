//! Reentrancy, on request: an owner that is named takes the same mutex again.

mod guard;
mod mutex;
mod owner;
mod table;

pub use self::{guard::ReentrantGuard, mutex::ReentrantMutex, owner::Owner};
