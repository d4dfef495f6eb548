//! What a client of compose says of the file: it needs no daemon for that.

use std::{
    fs::{self, File},
    process::Command,
};

use anyhow::{Context, Result};

use crate::run::{output, root, step, target};

const FILE: &str = "compose/compose.yaml";

/// Lets the client that is there read the file, or says that there is none.
///
/// # Errors
/// It finds a fault.
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
    let mut old = Command::new("docker-compose");
    if output(old.arg("--version")).is_err() {
        println!("    there is no docker compose to look at {FILE} with");
        return Ok(());
    }
    // The first generation, which Debian has, knows all but the name of the project.
    let text = fs::read_to_string(root().join(FILE)).context(FILE)?;
    let without_name = text.lines().filter(|line| !line.starts_with("name:")).collect::<Vec<_>>().join("\n");
    let copy = target().join("compose.yaml");
    fs::write(&copy, without_name)?;
    let mut old = Command::new("docker-compose");
    old.args(["-f", "-"]).args(config()).stdin(File::open(&copy)?).current_dir(root());
    step("docker-compose config", &mut old)
}

fn config() -> [&'static str; 4] {
    ["--profile", "all", "config", "--quiet"]
}
