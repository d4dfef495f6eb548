//! Checks the compose file with a client of compose. This needs no daemon.

use std::{
    fs::{self, File},
    process::Command,
};

use anyhow::{Context, Result};

use super::offer;
use crate::{
    run::{output, root, step, target},
    server::COMPOSE,
};

const FILE: &str = "compose/compose.yaml";

/// Lets a client read the file, if a client is available.
///
/// # Errors
/// The client finds a fault.
pub(super) fn check() -> Result<()> {
    let current = || {
        let mut docker = Command::new("docker");
        docker.arg("compose");
        docker
    };
    if output(current().arg("version")).is_ok() {
        return step(
            "docker compose config",
            current().args(["-f", FILE]).args(config()).current_dir(root()),
        );
    }
    if !offer(&COMPOSE) {
        return Ok(());
    }
    // The first generation of compose, which Debian has, supports everything except the name of the
    // project.
    let text = fs::read_to_string(root().join(FILE)).context(FILE)?;
    let without_name =
        text.lines().filter(|line| !line.starts_with("name:")).collect::<Vec<_>>().join("\n");
    let copy = target().join("compose.yaml");
    fs::write(&copy, without_name)?;
    let mut old = Command::new("docker-compose");
    old.args(["-f", "-"]).args(config()).stdin(File::open(&copy)?).current_dir(root());
    step("docker-compose config", &mut old)
}

fn config() -> [&'static str; 4] {
    ["--profile", "all", "config", "--quiet"]
}
