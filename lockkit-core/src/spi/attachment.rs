//! Defines what a store gives to the holder of a lock beside the lock.

use std::{any::Any, fmt};

/// An object that a claim gives to its holder, such as the transaction that holds a row lock.
///
/// The holder may keep it for longer than the lock. The attachment itself must know when the
/// release ended its resource.
pub trait Attachment: Any + fmt::Debug + Send + Sync {
    /// The guard is being released while its lease is still valid. The core calls this before the
    /// release is sent. It must not block or panic.
    fn guard_released(&self) {}

    /// The guard was dropped without a release. The core calls this once, before the release that
    /// follows. If the lock was lost, the release may have been sent already. It must not block or
    /// panic.
    fn guard_dropped(&self) {}
}
