//! The embedded store: locks between the tasks of one process, and the reference model of the
//! contract.
//!
//! [`Memory`] keeps every promise without an exception, so the other backends are measured against
//! its rules:
//!
//! * **Order.** There is one queue per name, strictly first in, first out, for all modes. A claim
//!   is granted when it fits together with all holders *and with all waiters ahead of it*. So a
//!   newcomer never barges past a queue, and a reader behind a queued writer waits. A first waiter
//!   that wants many permits is not starved by small claims.
//! * **Wake-ups.** When a lock or a place becomes free, the store wakes exactly the waiters that
//!   can be granted now. These are one exclusive waiter, or all leading shared ones, or the leading
//!   permit claims that fit. A waiter that was woken and leaves passes the wake-up on.
//! * **Leases.** They run on the store's [`Clock`](crate::Clock) and end exactly one ttl after the
//!   last grant or renewal. Nothing runs in the background: the next look at a name notices an
//!   ended lease.
//! * **Tokens.** One counter serves all names, so nothing is kept for an idle name. It starts at
//!   the wall clock in microseconds. So tokens continue to rise when the process restarts and the
//!   protected resource remembers them. There are two exceptions: the wall clock was set back, or
//!   the process granted more than a million locks a second over its whole life.
//! * **Forgotten waiters.** A waiter that no longer asks loses its place after its ttl or after
//!   three polls, whichever is longer. So a leaked future can't block a name for ever.

mod backend;
mod claim;
mod connector;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod random_tests;
mod record;
mod shared;
#[cfg(test)]
mod spi_tests;
mod store;
#[cfg(test)]
mod ticket_tests;
#[cfg(test)]
mod world;

pub use self::backend::Memory;
pub(crate) use self::connector::MemoryConnector;
