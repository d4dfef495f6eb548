//! Finds the programs of the servers.

use std::{env, path::PathBuf};

use anyhow::{Context as _, Result};

use super::REDIS_URL_VARIABLE;
use crate::cache;

const VALKEY: &str = "valkey-server";
/// Must match the file that xtask fetches.
const VALKEY_VERSION: &str = "9.1.2";

/// Finds redis-server.
pub(super) fn redis_server() -> Result<PathBuf> {
    // Debian's smallest package with the server in it is redis-tools: it installs no service.
    find(&["redis-server", "redis-check-rdb"]).with_context(|| {
        format!(
            "no redis-server is installed. This command installs one, without a service: \
             apt-get install --no-install-recommends redis-tools\n\
             Or set {REDIS_URL_VARIABLE} to the URL of a server of your own"
        )
    })
}

/// The valkey-server on the `PATH`, or else the one in [`valkey_home`]. `None` if there is none,
/// because no test depends on it.
#[must_use]
pub fn valkey_server() -> Option<PathBuf> {
    let fetched = || Some(valkey_home().ok()?.join(VALKEY)).filter(|program| program.is_file());
    find(&[VALKEY]).or_else(fetched)
}

/// The folder for a valkey-server that `cargo xtask` fetches. A newer version has another folder.
///
/// # Errors
/// When no cache folder is known.
pub fn valkey_home() -> Result<PathBuf> {
    Ok(cache::folder()?.join(format!("valkey-{VALKEY_VERSION}")))
}

fn find(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    names.iter().find_map(|name| {
        env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|candidate| candidate.is_file())
    })
}
