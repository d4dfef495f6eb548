//! Runs other programs in the workspace, and prints their names.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result, bail};

/// The folder of the workspace, independent of the current folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// The folder of build results, which also contains tools that only this workspace uses.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// The cargo that started this program, in the workspace's folder.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    // `cargo run` describes this package with these variables. ring's build script reads them, and
    // would run again: all crates that use ring would be compiled anew.
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_of_a_package(name)) {
        command.env_remove(name);
    }
    command
}

fn is_of_a_package(variable: &OsStr) -> bool {
    let name = variable.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

/// A program that cargo has built: `lockkit`, or `examples/` and the name of an example.
pub(crate) fn built(name: &str) -> Command {
    let mut command = Command::new(target().join("debug").join(name));
    command.current_dir(root());
    command
}

/// Runs a command silently, and returns its standard output.
///
/// # Errors
/// The command can't be started or fails; the error contains its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {}", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {}", shown(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command to its end, and prints a heading and the time that it took.
///
/// # Errors
/// The command can't be started, or fails.
pub(crate) fn step(title: &str, command: &mut Command) -> Result<()> {
    println!("\n==> {title}");
    let start = Instant::now();
    let status =
        command.status().with_context(|| format!("{title}: could not start {}", shown(command)))?;
    if !status.success() {
        bail!("{title}: {} failed ({status})", shown(command));
    }
    println!("    {title}: ok, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// The command as a user would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_names_itself_and_its_command() {
        let error = step("the gate", Command::new("/bin/sh").args(["-c", "exit 3"]))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "the gate: sh -c exit 3 failed (exit status: 3)");
        step("the gate", &mut Command::new("true")).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let error =
            step("the gate", &mut Command::new("lockkit-no-such-program")).unwrap_err().to_string();
        assert_eq!(error, "the gate: could not start lockkit-no-such-program");
    }
}
