//! Lists the items of a crate that rustdoc reports, one per line.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use public_api::Builder;
use serde_json::Value;

use crate::{
    members::Member,
    run::{cargo, step, target},
};

/// The format that our version of public-api reads.
const FORMAT: u64 = 57;

/// Writing JSON is an experiment of rustdoc, and a stable rustdoc needs a variable for it. The
/// variable must not be in cargo's environment. Build scripts read it, so cargo would rebuild
/// everything, then and the next time.
const EXPERIMENTAL: &str =
    "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec \"${LOCKKIT_RUSTDOC:-rustdoc}\" \"$@\"\n";

/// Makes rustdoc describe all crates of the workspace, and returns the folder.
///
/// # Errors
/// rustdoc fails.
pub(super) fn write() -> Result<PathBuf> {
    let tools = target().join("tools");
    fs::create_dir_all(&tools)?;
    let rustdoc = tools.join("experimental-rustdoc");
    fs::write(&rustdoc, EXPERIMENTAL)?;
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755))?;
    // The arguments are those of the documentation, so that cargo reuses the crates that it has
    // built.
    let mut command = cargo(&[
        "doc",
        "--locked",
        "--quiet",
        "--workspace",
        "--lib",
        "--all-features",
        "--no-deps",
    ]);
    if let Some(theirs) = std::env::var_os("RUSTDOC") {
        command.env("LOCKKIT_RUSTDOC", theirs);
    }
    command
        .env("RUSTDOC", &rustdoc)
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    step("public interface", &mut command)?;
    Ok(target().join("doc"))
}

/// A message, if this rustdoc writes a format that this program can't read.
///
/// # Errors
/// The output is not JSON.
pub(super) fn other_format(folder: &Path) -> Result<Option<String>> {
    let json = json(folder, "lockkit-core")?;
    let format = json["format_version"].as_u64();
    Ok((format != Some(FORMAT)).then(|| {
        let found = format.map_or("none".to_owned(), |format| format.to_string());
        format!("the comparison of the public interface needs Rust 1.95, whose rustdoc writes format {FORMAT}; this one writes {found}")
    }))
}

/// The interface of one crate, sorted, with a line for each item. It omits traits that the compiler
/// implements for every type.
///
/// # Errors
/// The output can't be read.
pub(super) fn read(folder: &Path, member: &Member) -> Result<Vec<String>> {
    let file = file(folder, &member.name);
    let api = Builder::from_rustdoc_json(&file)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .with_context(|| file.display().to_string())?;
    Ok(api.items().map(ToString::to_string).collect())
}

/// The output of rustdoc about a crate.
///
/// # Errors
/// The file can't be read.
pub(super) fn json(folder: &Path, name: &str) -> Result<Value> {
    let file = file(folder, name);
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{}.json", name.replace('-', "_")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_rustdoc_is_distinguished_from_ours() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lockkit_core.json");
        fs::write(&file, format!(r#"{{"format_version": {FORMAT}}}"#)).unwrap();
        assert_eq!(other_format(folder.path()).unwrap(), None);
        fs::write(&file, r#"{"format_version": 60}"#).unwrap();
        assert!(other_format(folder.path()).unwrap().unwrap().ends_with("this one writes 60"));
        fs::write(&file, "no JSON").unwrap();
        other_format(folder.path()).unwrap_err();
    }
}
