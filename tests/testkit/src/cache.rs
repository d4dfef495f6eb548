//! The folder for files that are made or fetched once and kept for the next time.

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result};

/// lockkit's part of the user's cache folder.
pub(crate) fn folder() -> Result<PathBuf> {
    let user =
        variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let user = user.context("no cache folder is known: set HOME or XDG_CACHE_HOME")?;
    Ok(user.join("lockkit"))
}

/// The path that a variable holds.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
