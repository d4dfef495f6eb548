//! One lock over several stores that don't depend on each other.
mod backend;
mod ballot;
mod claim;
mod failure;
mod gather;
mod inspect;
mod member;
mod need;
mod sweeper;
#[cfg(test)]
mod tests;
mod vote;

pub use self::{backend::Quorum, need::Need};
