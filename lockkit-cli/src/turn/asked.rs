//! Listens for requests to release the lock of a turn.

use std::future::pending;

use lockkit::LockGuard;

/// Completes with the reason of a request. It never completes if the store carries no requests, or
/// if the lock is lost, which the turn notices by itself.
pub(super) async fn release_requested(guard: &LockGuard) -> String {
    match guard.release_requested().await {
        Ok(reason) => reason,
        Err(_) => pending().await,
    }
}
