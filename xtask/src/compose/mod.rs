//! The servers for users: the compose file, and native.sh for machines without docker.

mod client;
mod native;

#[cfg(test)]
mod agreement;

use std::process::Command;

use anyhow::Result;

use crate::{
    install, mysql,
    run::{root, step},
    server, valkey,
};

/// Looks at both with the tools that others wrote for that, and tries each URL of native.sh.
///
/// # Errors
/// A fault was found, or a URL doesn't work. Tools that can't be had here are no error, but are named loudly.
pub(crate) fn check() -> Result<()> {
    for tool in [&server::COMPOSE, &server::SHELLCHECK] {
        if let Err(error) = install::servers(&[tool]) {
            let line = "=".repeat(80);
            eprintln!("\n{line}\nWARNING: {} does not look at compose/.\n{error:#}\n{line}", tool.name);
        }
    }
    client::check()?;
    if server::SHELLCHECK.is_there() {
        let mut command = Command::new("shellcheck");
        command.args(["-x", "-P", "compose", "compose/native.sh"]).current_dir(root());
        step("shellcheck", &mut command)?;
    }
    install::servers(server::FOR_NATIVE)?;
    let mysql = mysql::offer()?;
    mysql.warn();
    valkey::offer();
    native::check()
}
