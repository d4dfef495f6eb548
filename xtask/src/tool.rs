//! Programs of cargo that the checks use, installed among the build results where they are missing.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::run::{cargo, target};

/// The folder of our own installations.
pub(crate) fn folder() -> PathBuf {
    target().join("tools")
}

/// Whether the program is there and runs.
pub(crate) fn works(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Builds a released version into [`folder`].
pub(crate) fn from_source(name: &str, version: &str) -> Command {
    let mut command = cargo(&["install", "--locked", "--debug", name, "--version", version]);
    // In a temporary folder of its own: its hundreds of crates are of no use to the workspace.
    command.arg("--root").arg(folder()).env_remove("CARGO_TARGET_DIR");
    command
}
