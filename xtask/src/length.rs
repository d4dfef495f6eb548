//! Checks the length of source files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::files;

/// The most lines of a source file.
const MOST_LINES: usize = 500;

/// Checks every Rust file under `folder`.
///
/// # Errors
/// Names each file that is too long.
pub(crate) fn check(folder: &Path) -> Result<()> {
    check_files(&files::with_extension(folder, "rs")?, MOST_LINES)
}

/// Checks some files against another bound.
///
/// # Errors
/// Names each file that is too long.
pub(crate) fn check_files(files: &[PathBuf], most: usize) -> Result<()> {
    let mut long = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let lines = text.lines().count();
        if lines > most {
            long.push(format!("{}: {lines} lines", file.display()));
        }
    }
    if long.is_empty() { Ok(()) } else { bail!("more than {most} lines:\n  {}", long.join("\n  ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_each_file_that_is_too_long() {
        let folder = tempfile::tempdir().unwrap();
        for place in ["src/deep", "target", ".hidden"] {
            fs::create_dir_all(folder.path().join(place)).unwrap();
        }
        let write = |place: &str, lines: usize| {
            fs::write(folder.path().join(place), "//\n".repeat(lines)).unwrap()
        };
        write("src/deep/fits.rs", 500);
        write("src/notes.md", 501);
        write("target/generated.rs", 501);
        write(".hidden/other.rs", 501);
        check(folder.path()).unwrap();

        write("src/deep/long.rs", 501);
        let error = check(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("src/deep/long.rs: 501 lines") && !error.contains("target"),
            "{error}"
        );
    }
}
