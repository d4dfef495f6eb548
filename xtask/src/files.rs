//! Finds the handwritten files of the workspace.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// All files under `folder` with this extension, in order. Skips hidden folders and build results.
///
/// # Errors
/// A folder can't be read.
pub(crate) fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name();
        let passed_over = name == "target" || name.as_encoded_bytes().starts_with(b".");
        if entry.file_type()?.is_dir() {
            if !passed_over {
                files.append(&mut with_extension(&path, extension)?);
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
