//! Helps to fill a folder in another place and then rename it, so that it is complete or missing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// The path with a suffix added to its name.
pub(crate) fn beside(home: &Path, suffix: &str) -> PathBuf {
    let mut name = home.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// Removes a folder if it exists.
///
/// # Errors
/// The folder can't be removed.
pub(crate) fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("could not remove {}", folder.display()))?;
    }
    Ok(())
}
