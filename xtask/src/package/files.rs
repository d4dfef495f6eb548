//! Checks that a package has all its files and no other files.

use std::{
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::fault;
use crate::{
    members::Member,
    run::{output, target},
};

/// The largest compressed size, three times the size of the largest package. A larger package
/// contains a file that must not be published.
const MOST_BYTES: u64 = 600_000;

const ALWAYS: [&str; 4] = ["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// The missing and the forbidden files of the package that cargo has made.
///
/// # Errors
/// The package can't be read.
pub(super) fn faults(member: &Member) -> Result<Vec<String>> {
    let name = format!("{}-{}", member.name, member.version);
    let package = target().join("package").join(format!("{name}.crate"));
    let bytes = fs::metadata(&package).with_context(|| package.display().to_string())?.len();
    let listing = output(Command::new("tar").arg("-tzf").arg(&package))?;
    let files: Vec<_> =
        listing.lines().filter_map(|line| line.strip_prefix(&name)?.strip_prefix('/')).collect();
    ensure!(!files.is_empty(), "{} is empty", package.display());
    let mut faults = lacks_or_has_too_much(member, &files);
    let sources = below(&member.folder, Path::new("src"))?;
    let missing =
        sources.iter().filter(|path| !files.iter().any(|file| Path::new(file) == path.as_path()));
    faults.extend(missing.map(|path| lack(member, path)));
    if bytes > MOST_BYTES {
        faults.push(fault(
            member,
            &format!("its package has {bytes} bytes, but may have at most {MOST_BYTES}"),
        ));
    }
    Ok(faults)
}

fn lacks_or_has_too_much(member: &Member, files: &[&str]) -> Vec<String> {
    let mut needed: Vec<PathBuf> = ALWAYS.iter().map(PathBuf::from).collect();
    for file in files.iter().filter(|file| file.starts_with("src/") && file.ends_with(".rs")) {
        // cargo finds such a missing file itself.
        let source = fs::read_to_string(member.folder.join(file)).unwrap_or_default();
        needed.extend(included(Path::new(file), &source));
    }
    let missing =
        needed.iter().filter(|path| !files.iter().any(|file| Path::new(file) == path.as_path()));
    let mut faults: Vec<_> = missing.map(|path| lack(member, path)).collect();
    let strange =
        files.iter().filter(|file| file.starts_with("tests/") || file.starts_with("benches/"));
    faults.extend(
        strange.map(|file| {
            fault(member, &format!("its package has {file}, which can't be built there"))
        }),
    );
    faults
}

fn lack(member: &Member, path: &Path) -> String {
    fault(member, &format!("its package lacks {}", path.display()))
}

/// All files of a folder, including scripts whose names are composed by macros.
fn below(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join(folder)).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            files.append(&mut below(root, &path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The files that a source file names in `include_str!("…")` and `include_bytes!("…")`.
fn included(file: &Path, source: &str) -> Vec<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let calls = ["include_str!(\"", "include_bytes!(\""];
    let names = calls
        .iter()
        .flat_map(|call| source.split(call).skip(1).filter_map(|rest| rest.split('"').next()));
    names.map(|name| plain(&folder.join(name))).collect()
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::members;

    #[test]
    fn included_files_are_looked_for_where_the_source_file_is() {
        let source =
            r#"const A: &str = include_str!("schema.sql"); #![doc = include_str!("../README.md")]"#;
        let expected = [Path::new("src/schema.sql"), Path::new("README.md")];
        assert_eq!(included(Path::new("src/schema.rs"), source), expected);
    }

    #[test]
    fn a_file_that_is_missing_and_one_that_is_too_much_are_named() {
        let member =
            members().unwrap().into_iter().find(|member| member.name == "lockkit-mysql").unwrap();
        let mut files = ALWAYS.to_vec();
        files.extend(["src/schema.rs", "src/schema.sql"]);
        assert_eq!(lacks_or_has_too_much(&member, &files), Vec::<String>::new());
        files.pop();
        files.push("tests/all.rs");
        assert_eq!(
            lacks_or_has_too_much(&member, &files),
            [
                "lockkit-mysql: its package lacks src/schema.sql",
                "lockkit-mysql: its package has tests/all.rs, which can't be built there",
            ]
        );
    }
}
