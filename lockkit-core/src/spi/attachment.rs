//! What a store gives to the holder of a lock beside the lock.

use std::{any::Any, fmt};

/// Something that a claim hands to its holder, such as the transaction that holds a row lock.
///
/// The holder may keep it for longer than the lock; what the release ends, it must know as ended.
pub trait Attachment: Any + fmt::Debug + Send + Sync {
    /// The guard is being released while its lease stands. Called before the release that follows;
    /// must not block or panic.
    fn guard_released(&self) {}

    /// The guard was dropped without a release. Called once, before the release that follows; of a
    /// lock that was lost, the release may have been sent already. Must not block or panic.
    fn guard_dropped(&self) {}
}
