//! What a locker tells about its work, beside its `tracing` spans.

use std::{fmt, time::Duration};

use crate::{
    error::Error,
    name::LockName,
    spi::{LossReason, Mode, Released},
    token::FencingToken,
};

/// Hears what a locker does, for metrics or tests.
///
/// Called inline, from the task that does the work: it must be quick and must not block.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Hears one event.
    fn on_event(&self, event: &Event<'_>);
}

/// Something that happened to a lock.
#[non_exhaustive]
#[derive(Debug)]
pub enum Event<'a> {
    /// A `lock` call ended before it had the lock, and what it left behind is being cleaned up.
    #[non_exhaustive]
    Abandoned {
        /// The lock.
        name: &'a LockName,
    },
    /// A lock was granted.
    #[non_exhaustive]
    Acquired {
        /// The lock.
        name: &'a LockName,
        /// How it is held.
        mode: Mode,
        /// The token of the grant.
        token: FencingToken,
        /// From the call to the grant.
        waited: Duration,
        /// How many requests it took.
        attempts: u32,
    },
    /// A request failed; the driver goes on inside its bounds.
    #[non_exhaustive]
    Failed {
        /// The lock.
        name: &'a LockName,
        /// What went wrong.
        error: &'a Error,
    },
    /// A held lock was lost.
    #[non_exhaustive]
    Lost {
        /// The lock.
        name: &'a LockName,
        /// The token of the grant.
        token: FencingToken,
        /// Why.
        reason: LossReason,
    },
    /// A release was answered.
    #[non_exhaustive]
    Released {
        /// The lock.
        name: &'a LockName,
        /// The token of the grant.
        token: FencingToken,
        /// What the store said.
        outcome: Released,
    },
    /// A renewal was confirmed.
    #[non_exhaustive]
    Renewed {
        /// The lock.
        name: &'a LockName,
        /// The token of the grant.
        token: FencingToken,
    },
    /// The bound on waiting passed, or a try found the lock taken.
    #[non_exhaustive]
    TimedOut {
        /// The lock.
        name: &'a LockName,
        /// From the call to its end.
        waited: Duration,
    },
}
