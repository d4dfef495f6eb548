//! Builds and lists the test programs.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::run::{cargo, shown};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) package: String,
    /// The name of the library, of the binary, or of the file in `tests`.
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) file: PathBuf,
    /// The folder of its package, in which cargo runs test programs.
    pub(super) folder: PathBuf,
    /// The program skips tests whose names have one of these parts.
    pub(super) skips: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Library,
    Binary,
    Test,
}

impl Program {
    /// Its package and its name.
    pub(super) fn id(&self) -> (&str, &str) {
        (&self.package, &self.name)
    }

    /// The name in reports.
    pub(super) fn title(&self) -> String {
        match self.kind {
            Kind::Library => self.package.clone(),
            _ => format!("{} {}", self.package, self.name),
        }
    }

    /// The command that runs one of its tests again.
    pub(super) fn command(&self, test: &str) -> String {
        let target = match self.kind {
            Kind::Library => "--lib".to_owned(),
            Kind::Binary => format!("--bin {}", self.name),
            Kind::Test => format!("--test {}", self.name),
        };
        format!("cargo xtask test -- -p {} {target} -- --exact '{test}'", self.package)
    }
}

/// Builds all programs, with every feature. cargo prints its progress and its errors.
///
/// # Errors
/// The build fails, or cargo's messages have an unknown shape.
pub(super) fn build(arguments: &[String]) -> Result<Vec<Program>> {
    let mut command = cargo(&["test", "--workspace", "--all-features", "--no-run"]);
    command.args(["--message-format", "json-render-diagnostics"]).args(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().context("could not start cargo test")?;
    let mut programs = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let message = serde_json::from_str(&line?).context("cargo's messages")?;
            programs.extend(program(&message));
        }
    }
    ensure!(child.wait()?.success(), "{} failed", shown(&command));
    Ok(programs)
}

/// The program of a message. Returns `None` for any other message.
fn program(message: &Value) -> Option<Program> {
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let kind = match message["target"]["kind"][0].as_str()? {
        "test" => Kind::Test,
        "bin" => Kind::Binary,
        _ => Kind::Library,
    };
    Some(Program {
        package: package(message["package_id"].as_str()?).to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        kind,
        file: message["executable"].as_str()?.into(),
        folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
        skips: &[],
    })
}

/// The package's name: the end of `path+file:///folder/name#1.2.3`. If the folder has another name,
/// the id is `path+file:///folder#name@1.2.3`.
fn package(id: &str) -> &str {
    let (folder, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name,
        None => folder.rsplit('/').next().unwrap_or(folder),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn test_programs_are_found_among_all_messages() {
        let message = |kind: &str, is_test: bool| {
            json!({
                "reason": "compiler-artifact", "package_id": "path+file:///w/tests/testkit#lockkit-fixture@0.1.0",
                "manifest_path": "/w/tests/testkit/Cargo.toml", "target": {"kind": [kind], "name": "watchdog"},
                "profile": {"test": is_test}, "executable": if is_test { json!("/w/target/watchdog-1") } else { Value::Null }
            })
        };
        assert_eq!(program(&message("test", false)), None);
        assert_eq!(program(&json!({"reason": "build-finished", "success": true})), None);
        let found = program(&message("test", true)).unwrap();
        assert_eq!(
            (found.kind, found.folder.as_path()),
            (Kind::Test, Path::new("/w/tests/testkit"))
        );
        assert_eq!(found.title(), "lockkit-fixture watchdog");
        let again = "cargo xtask test -- -p lockkit-fixture --test watchdog -- --exact 'a::b'";
        assert_eq!(found.command("a::b"), again);
        assert_eq!(program(&message("lib", true)).unwrap().title(), "lockkit-fixture");
    }

    #[test]
    fn a_package_is_named_by_its_folder_or_its_version() {
        assert_eq!(package("path+file:///w/lockkit-zk#0.1.0"), "lockkit-zk");
        assert_eq!(package("path+file:///w/tests/stores#lockkit-stores@0.1.0"), "lockkit-stores");
    }
}
