//! The parts of a backend in which the two strategies differ.

use std::fmt;

use async_trait::async_trait;
use lockkit_core::{
    FencingToken, Kind, LockName, Result,
    spi::{Claim, ClaimSpec, Descriptor, Inspection, Released},
};

/// A way to lock in a database: by rows with leases, or by row locks.
#[async_trait]
pub(crate) trait Locking: fmt::Debug + Send + Sync {
    /// As [`Backend::descriptor`](lockkit_core::spi::Backend::descriptor).
    fn descriptor(&self) -> &Descriptor;

    /// As [`Backend::claim`](lockkit_core::spi::Backend::claim).
    ///
    /// # Errors
    /// The strategy has no such claims.
    fn claim(&self, spec: ClaimSpec) -> Result<Box<dyn Claim>>;

    /// As [`Backend::inspect`](lockkit_core::spi::Backend::inspect).
    ///
    /// # Errors
    /// Returns the server's error.
    async fn inspect(&self, name: &LockName) -> Result<Inspection>;

    /// As [`Backend::force_release`](lockkit_core::spi::Backend::force_release).
    ///
    /// # Errors
    /// Returns the server's error.
    async fn force_release(&self, name: &LockName, token: FencingToken) -> Result<Released>;

    /// As [`Admin::names`](lockkit_core::spi::Admin::names).
    ///
    /// # Errors
    /// Returns the server's error.
    async fn names(&self, kind: Kind, prefix: &str) -> Result<Vec<LockName>>;

    /// Removes the rows of names that were not used for the retention, and returns how many.
    ///
    /// # Errors
    /// Returns the server's error.
    async fn collect_garbage(&self) -> Result<u64>;
}
