//! The contract: what a lockkit lock promises, under the numbers by which the conformance suite
//! checks it.
//!
//! Every backend keeps every promise that its capabilities claim. A backend may claim less: a
//! [capability](crate::spi::Capabilities) is off, or an [exception](crate::spi::Exceptions) is
//! listed in its [descriptor](crate::spi::Descriptor), documented, and tested for what is left. It
//! may never claim a thing and keep it only mostly.
//!
//! A **name** is what is locked; it lives in a **kind** (mutex, read/write, semaphore, election):
//! the same text in two kinds is two locks. A **claim** is one attempt of one owner to get one name
//! in one mode (exclusive, shared, or k of n permits). A **grant** is a claim that won. **ttl** is
//! the lease the caller asked for. An election is an exclusive lock whose label is the leader's
//! value and whose token is its term: each promise holds for it.
//!
//! What no lock can promise: a holder that is paused *after* its last check may act late. Only a
//! token that the protected resource compares can stop it; [`FencingToken`](crate::FencingToken)
//! shows how.

#![doc = include_str!("contract.md")]
