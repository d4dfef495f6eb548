//! Locks for programs without a tokio runtime: each call blocks its thread. Needs the cargo feature
//! `blocking`.
//!
//! The types have the names of the async ones, and their methods have the same names and meanings.
//! [`Locker`] says how they run, and which errors they add. [`Locker::block_on`] runs the calls
//! that have no blocking form, such as those of elections.

use lockkit_core::Result;
pub use lockkit_core::blocking::*;

/// Connects to the store of a URL, as [`lockkit::connect`](crate::connect), and starts the
/// background thread.
///
/// ```
/// # fn main() -> lockkit::Result<()> {
/// let locker = lockkit::blocking::connect("memory://?ttl=10s")?;
/// let token = locker.mutex("orders/42")?.scope(|hold| hold.fencing_token())?;
/// println!("written under {token}");
/// locker.shutdown()
/// # }
/// ```
///
/// # Errors
/// As [`lockkit::connect`](crate::connect), and as [`Locker::new`].
pub fn connect(url: &str) -> Result<Locker> {
    Locker::open(crate::connect(url))
}
