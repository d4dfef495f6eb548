//! What rustdoc says of a crate, as lines.

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

/// The one that our version of public-api reads.
const FORMAT: u64 = 57;

/// rustdoc writes JSON only as an experiment, which a stable one has to be asked for by a variable.
/// It must not be in cargo's environment: build scripts ask for it, and everything would be built
/// anew, then and the next time.
const EXPERIMENTAL: &str =
    "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec \"${LOCKKIT_RUSTDOC:-rustdoc}\" \"$@\"\n";

/// Has rustdoc describe all crates of the workspace, and answers in which folder.
///
/// # Errors
/// It fails.
pub(super) fn write() -> Result<PathBuf> {
    let tools = target().join("tools");
    fs::create_dir_all(&tools)?;
    let rustdoc = tools.join("experimental-rustdoc");
    fs::write(&rustdoc, EXPERIMENTAL)?;
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755))?;
    // As the documentation is made, so that it has the same crates built.
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

/// Says so if it was a rustdoc whose output we can't read.
///
/// # Errors
/// The output is no JSON at all.
pub(super) fn other_format(folder: &Path) -> Result<Option<String>> {
    let json = json(folder, "lockkit-core")?;
    let format = json["format_version"].as_u64();
    Ok((format != Some(FORMAT)).then(|| {
        let found = format.map_or("none".to_owned(), |format| format.to_string());
        format!("the public interface is compared with Rust 1.95, whose rustdoc writes format {FORMAT}; this one writes {found}")
    }))
}

/// The interface of one crate, a line for each item, sorted. Without what the compiler implements
/// for every type.
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

/// All that was said of a crate.
///
/// # Errors
/// It can't be read.
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
    fn another_rustdoc_is_told_from_ours() {
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
