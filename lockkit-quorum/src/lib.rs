//! lockkit's quorum: one lock over several stores that don't depend on each other.
//!
//! A [`Quorum`] is a backend over any others: five Redis masters make Redlock, and stores of
//! several kinds can be mixed. A lock is held once a majority of the members has granted it
//! ([`Need::Majority`]), so it outlives the loss of the others; or once all have ([`Need::All`]),
//! for a lock that has to stand in each of several stores.
//!
//! ```
//! # use std::sync::Arc;
//! # use lockkit_core::{Locker, Memory, Result, spi::Backend};
//! # use lockkit_quorum::Quorum;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let member = || -> Arc<dyn Backend> { Arc::new(Memory::new()) };
//! let locker = Locker::new(Quorum::new(vec![member(), member(), member()])?);
//! let guard = locker.mutex("report")?.lock().await?;
//! guard.release().await?;
//! # locker.shutdown().await
//! # }
//! ```
//!
//! As a URL:
//! `quorum://?member=redis%3A%2F%2Fa%2F&member=redis%3A%2F%2Fb%2F&member=redis%3A%2F%2Fc%2F`, with
//! `&need=all` where all members are needed. Each member is a URL of its own, percent-encoded once
//! more; `ttl`, `op_timeout`, `max_hold`, `label`, `group`, `token_base` and `process_gate` are
//! given once, beside the members. Where a majority is enough, members that can't be reached at the
//! start are connected to later. Where all are needed and the first member can't raise tokens, it
//! may have a `token_base` of its own: see [`Quorum::with_first_token_base`].
//!
//! # What it can do
//! * Exclusive locks. Not readers: half of their members could be a writer's other half's. Not
//!   permits: n on each member would be more than n for two majorities.
//! * Waiters poll, every 10 to 200 ms. There is no queue: two members may see two waiters in
//!   different orders.
//! * Fencing tokens that strictly rise: a majority of the members is raised to the largest token of
//!   the grant before that is returned. So each member must be able to raise one (`raise_token`),
//!   and [`Quorum::new`] refuses those that can't, such as ZooKeeper. Where all are needed, those
//!   are raised that can be: so a lock that is moved from one member's store to another's, by way
//!   of both, has rising tokens throughout.
//! * An acquire takes two round trips of a majority, a release one. Where all are needed it takes
//!   one for each member, one after the other, and another one if a token is to be raised. Members
//!   that are down or silent are not waited for; what they may have of a lock is taken back in the
//!   background, for as long as it may live.
//! * What members give beside a lock ([`Attachment`](lockkit_core::spi::Attachment)) is not handed
//!   on.
//!
//! # What breaks it
//! * **A member that loses what it granted**, by a restart without persistence, a failover or an
//!   eviction, can be part of a second majority while the first one holds. Keep such a member out
//!   for one ttl, or let it persist each write. Tokens rise all the same, as far as the members'
//!   clocks agree, so a resource that compares them is safe.
//! * **Members that are not independent**: two connections to one server grant and refuse together.
//! * **Users that don't agree** on the members and the need: all must name the same ones, and where
//!   all are needed, in the same order.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod ballot;
mod claim;
mod connector;
mod failure;
mod gather;
mod inspect;
mod late;
mod member;
mod members;
mod need;
mod operator;
mod sweeper;
#[cfg(test)]
mod tests;
mod vote;

use lockkit_core::Registry;

use self::connector::QuorumConnector;
pub use self::{backend::Quorum, connector::SCHEMES, need::Need};

/// Teaches a registry the schemes of this backend. The members of a quorum are found in the
/// registry that is asked to connect, whatever order its backends were registered in.
pub fn register(registry: &mut Registry) {
    registry.register(QuorumConnector);
}
