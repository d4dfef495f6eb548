//! The environment variables that describe a lock to the child that runs under it.

use std::ffi::OsString;

use lockkit::{LockGuard, spi::Mode};

use crate::store::Store;

/// The variables of a job under `guard`; `name` is the name as the user typed it.
pub(crate) fn of_lock(
    name: &str,
    guard: &LockGuard,
    store: &Store,
) -> Vec<(&'static str, OsString)> {
    let mode = match guard.mode() {
        Mode::Shared => "shared".to_owned(),
        Mode::Permits { count, limit } => format!("{count}/{limit}"),
        _ => "exclusive".to_owned(),
    };
    vec![
        ("LOCKKIT_NAME", name.into()),
        ("LOCKKIT_TOKEN", guard.fencing_token().to_string().into()),
        ("LOCKKIT_OWNER", guard.owner().to_string().into()),
        ("LOCKKIT_BACKEND", store.locker.descriptor().name.into()),
        ("LOCKKIT_MODE", mode.into()),
    ]
}
