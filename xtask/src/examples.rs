//! Lists the examples, and checks their lengths.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{files, length};

/// The most lines of an example, so that it fits on one screen.
const MOST_LINES: usize = 80;

/// The names of all examples in `folder`, as cargo knows them, in order. An example is a file, or a
/// folder with a `main.rs`. A folder with a `Cargo.toml` is a package, which has its own tests.
///
/// # Errors
/// The folder can't be read.
pub(crate) fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let is_file = path.extension().is_some_and(|extension| extension == "rs");
        if is_file || (path.join("main.rs").exists() && !path.join("Cargo.toml").exists()) {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Checks each file of the examples, except in packages. A package follows the rule for all source
/// files.
///
/// # Errors
/// Names each file that is too long.
pub(crate) fn check_length(folder: &Path) -> Result<()> {
    let mut files = files::with_extension(folder, "rs")?;
    let is_in_package = |file: &Path| {
        let above = file.ancestors().take_while(|above| *above != folder);
        above.into_iter().any(|above| above.join("Cargo.toml").exists())
    };
    files.retain(|file| !is_in_package(file));
    length::check_files(&files, MOST_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_examples_and_packages_are_not() {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("b.rs", ""),
            ("a/main.rs", ""),
            ("a/part.rs", ""),
            ("service/Cargo.toml", ""),
            ("notes.md", ""),
        ] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(folder.path().join("service/src")).unwrap();
        assert_eq!(names(folder.path()).unwrap(), ["a", "b"]);
    }

    #[test]
    fn each_file_of_an_example_is_short() {
        let folder = tempfile::tempdir().unwrap();
        for part in ["a", "service/src"] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        fs::write(folder.path().join("service/Cargo.toml"), "").unwrap();
        fs::write(folder.path().join("service/src/main.rs"), "//\n".repeat(81)).unwrap();
        fs::write(folder.path().join("a/part.rs"), "//\n".repeat(80)).unwrap();
        check_length(folder.path()).unwrap();
        fs::write(folder.path().join("a/part.rs"), "//\n".repeat(81)).unwrap();
        let error = check_length(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a/part.rs: 81 lines"), "{error}");
    }
}
