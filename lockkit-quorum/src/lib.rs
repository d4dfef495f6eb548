//! lockkit's quorum: one lock over several stores that do not depend on each other.
//!
//! A [`Quorum`] is a backend over any others. Five Redis masters make Redlock, and a quorum can mix
//! stores of several kinds. With [`Need::Majority`] a lock is held once a majority of the members
//! has granted it, so it survives the loss of the others. With [`Need::All`] all members must grant
//! it: this is for a lock that must exist in each of several stores.
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
//! more. The parameters `ttl`, `op_timeout`, `max_hold`, `label`, `group`, `token_base` and
//! `process_gate` are given once, beside the members. Where a majority is enough, members that
//! cannot be reached at the start are connected later. Where all are needed and the first member
//! cannot raise tokens, it may have a `token_base` of its own: see
//! [`Quorum::with_first_token_base`].
//!
//! # Capabilities
//! * It has exclusive locks. It has no read locks, because half of the members of two readers could
//!   be half of the members of a writer. It has no permits, because n permits on each member would
//!   be more than n for two majorities.
//! * Waiters poll, every 10 to 200 ms. There is no queue, because two members may see two waiters
//!   in different orders.
//! * Fencing tokens strictly rise: a majority of the members is raised to the largest token of the
//!   grant before the grant is returned. So each member must be able to raise a token
//!   (`raise_token`). [`Quorum::new`] refuses members that cannot, such as ZooKeeper.
//! * Where all members are needed, the members that can be raised are raised. So a lock can move
//!   from one member's store to another's, through both, with rising tokens throughout.
//! * An acquire takes two round trips of a majority, and a release takes one. Where all are needed,
//!   an acquire takes one round trip for each member, one after the other. It takes one more if a
//!   token must be raised.
//! * The quorum does not wait for members that are down or silent. Their parts of a lock are taken
//!   back in the background, for as long as they may live.
//! * A lock can move to another process by a ticket, if all members have tickets and can raise
//!   tokens. Each member moves its part, and the token stays. Two processes that resume one ticket
//!   at the same time may both fail, because each of them may get a part of the members.
//! * The [`Attachment`](lockkit_core::spi::Attachment) that a member gives with a lock is not
//!   passed on.
//!
//! # Faults that break it
//! * **A member that loses its grants**, by a restart without persistence, a failover or an
//!   eviction. It can be part of a second majority while the first one holds. Keep such a member
//!   out for one ttl, or let it persist each write. Tokens still rise, as far as the members'
//!   clocks agree, so a resource that compares them is safe.
//! * **Members that are not independent**: two connections to one server grant and refuse together.
//! * **Users that do not agree** on the members and the need. All users must name the same members.
//!   Where all are needed, they must name them in the same order.

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
mod sweeper;
#[cfg(test)]
mod tests;
mod vote;

use lockkit_core::Registry;

use self::connector::QuorumConnector;
pub use self::{backend::Quorum, connector::SCHEMES, need::Need};

/// Registers the schemes of this backend. A quorum finds the connectors of its members in the
/// registry that is asked to connect, in whatever order the backends were registered.
pub fn register(registry: &mut Registry) {
    registry.register(QuorumConnector);
}
