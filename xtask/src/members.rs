//! Reads what cargo knows about the workspace: its crates, their features, and their entries in the
//! registry.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::run::{cargo, shown};

/// Crates for test runs, and programs. No user's process contains them.
const APART: [&str; 10] = [
    "lockkit-bench",
    "lockkit-cli",
    "lockkit-conformance",
    "lockkit-example-migrate",
    "lockkit-example-schedulers",
    "lockkit-example-service",
    "lockkit-fixture",
    "lockkit-stores",
    "lockkit-torture",
    "xtask",
];

/// One crate of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) is_published: bool,
    pub(crate) has_library: bool,
    pub(crate) version: String,
    /// The other facts, as `cargo metadata` reports them.
    pub(crate) manifest: Value,
}

impl Member {
    /// Whether a user's program links it.
    pub(crate) fn is_for_users(&self) -> bool {
        !APART.contains(&self.name.as_str())
    }
}

/// The crates of the workspace, in cargo's order.
///
/// # Errors
/// `cargo metadata` fails, or its answer has an unknown shape.
pub(crate) fn members() -> Result<Vec<Member>> {
    let mut command = cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]);
    let output = command.output().context("could not start cargo metadata")?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        shown(&command),
        String::from_utf8_lossy(&output.stderr)
    );
    parse(&output.stdout)
}

fn parse(json: &[u8]) -> Result<Vec<Member>> {
    let metadata: Value = serde_json::from_slice(json).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    packages
        .iter()
        .map(|package| {
            member(package)
                .context("cargo metadata: a package without a name, features or a folder")
        })
        .collect()
}

fn member(package: &Value) -> Option<Member> {
    let features =
        package["features"].as_object()?.keys().filter(|name| *name != "default").cloned();
    let kinds =
        package["targets"].as_array()?.iter().filter_map(|target| target["kind"].as_array());
    Some(Member {
        name: package["name"].as_str()?.to_owned(),
        features: features.collect(),
        folder: Path::new(package["manifest_path"].as_str()?).parent()?.to_owned(),
        // An empty list of registries is `publish = false`.
        is_published: package["publish"].is_null(),
        has_library: kinds.flatten().any(|kind| kind == "lib"),
        version: package["version"].as_str()?.to_owned(),
        manifest: package.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_and_features() {
        let json = br#"{"packages": [
            {"name": "lockkit", "features": {"default": [], "full": ["redis"], "redis": []}, "version": "0.1.0",
             "manifest_path": "/repo/Cargo.toml", "publish": null, "targets": [{"kind": ["lib"]}]},
            {"name": "xtask", "features": {}, "version": "0.1.0",
             "manifest_path": "/repo/xtask/Cargo.toml", "publish": [], "targets": [{"kind": ["bin"]}]}
        ]}"#;
        let members = parse(json).unwrap();
        let [lockkit, xtask] = members.as_slice() else { panic!("{members:?}") };
        assert_eq!((lockkit.name.as_str(), lockkit.version.as_str()), ("lockkit", "0.1.0"));
        assert_eq!(lockkit.features, ["full", "redis"]);
        assert_eq!(lockkit.folder, Path::new("/repo"));
        assert!(lockkit.is_published && lockkit.has_library);
        assert!(!xtask.is_published && !xtask.has_library);
        parse(b"{}").unwrap_err();
    }

    /// Users copy the example, so it must need only published crates.
    #[test]
    fn the_example_of_a_backend_uses_published_crates_only() {
        const EXAMPLE: &str = "lockkit-example-sqlite";
        let mut command = cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]);
        let metadata: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let package = |name: &Value| packages.iter().find(|package| package["name"] == *name);
        let mut ours = 0;
        for dependency in package(&EXAMPLE.into()).unwrap()["dependencies"].as_array().unwrap() {
            let Some(member) = package(&dependency["name"]) else { continue };
            let name = &dependency["name"];
            let version = dependency["req"].as_str().unwrap();
            // `publish = false` is an empty list of registries.
            assert!(member["publish"].is_null(), "{EXAMPLE} needs {name}, which is not published");
            assert!(version != "*", "{EXAMPLE} needs {name} of no version");
            assert!(
                dependency["features"].as_array().unwrap().is_empty(),
                "{EXAMPLE} needs features of {name}"
            );
            ours += 1;
        }
        assert!(ours > 1, "{EXAMPLE} uses too few crates of lockkit");
    }

    #[test]
    fn every_crate_is_known_as_test_support_or_for_users() {
        let members = members().unwrap();
        for name in APART {
            assert!(
                members.iter().any(|member| member.name == name),
                "{name} no longer exists, so APART is out of date"
            );
        }
        assert!(
            members.iter().any(|member| member.name == "lockkit-core" && member.is_for_users())
        );
    }
}
