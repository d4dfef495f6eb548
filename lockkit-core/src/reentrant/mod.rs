//! Offers reentrancy on request: an explicit owner can take the same mutex again.

mod guard;
mod mutex;
mod owner;
mod table;

pub use self::{guard::ReentrantGuard, mutex::ReentrantMutex, owner::Owner};
