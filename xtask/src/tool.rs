//! Programs of cargo that the checks use. Missing programs are installed among the build results.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::run::{cargo, target};

/// The folder of our own installations.
pub(crate) fn folder() -> PathBuf {
    target().join("tools")
}

/// Whether the program exists and runs.
pub(crate) fn works(program: &Path) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Builds a released version into [`folder`].
pub(crate) fn from_source(name: &str, version: &str) -> Command {
    let mut command = cargo(&["install", "--locked", "--debug", name, "--version", version]);
    // The build uses a temporary folder, because the workspace does not need its hundreds of
    // crates.
    command.arg("--root").arg(folder()).env_remove("CARGO_TARGET_DIR");
    command
}
