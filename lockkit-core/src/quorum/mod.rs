//! One lock over several stores that don't depend on each other.
mod backend;
mod ballot;
mod claim;
mod connector;
mod failure;
mod gather;
mod inspect;
mod late;
mod member;
mod need;
mod sweeper;
#[cfg(test)]
mod tests;
mod vote;

pub(crate) use self::connector::{SCHEMES, connect};
pub use self::{backend::Quorum, need::Need};
