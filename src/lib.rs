//! lockkit: one owner-checked, lease-aware distributed lock over several stores.

mod connect;

pub use lockkit_core::*;
#[cfg(feature = "redis")]
pub use lockkit_redis as redis;

pub use self::connect::{connect, registry};
