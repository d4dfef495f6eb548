//! Checks the servers for users: the compose file, and native.sh for machines without docker.

mod client;
mod native;

#[cfg(test)]
mod agreement;

use std::process::Command;

use anyhow::Result;

use crate::{
    install, mysql,
    run::{root, step},
    server::{self, SHELLCHECK, Server},
    valkey,
};

/// Checks both with standard tools, and tries each URL of native.sh.
///
/// # Errors
/// A check found a fault, or a URL doesn't work. If a tool is not available, this prints a warning
/// and returns no error.
pub(crate) fn check() -> Result<()> {
    client::check()?;
    if offer(&SHELLCHECK) {
        let mut command = Command::new("shellcheck");
        command.args(["-x", "-P", "compose", "compose/native.sh"]).current_dir(root());
        step("shellcheck", &mut command)?;
    }
    install::servers(server::FOR_NATIVE)?;
    mysql::offer()?.warn();
    valkey::offer();
    native::check()
}

/// Whether a tool is installed, or could be installed. If not, this prints a warning.
fn offer(tool: &Server) -> bool {
    let installed = install::servers(&[tool]);
    if let Err(error) = &installed {
        let line = "=".repeat(80);
        eprintln!(
            "\n{line}\nWARNING: compose/ was not checked with {}.\n{error:#}\n{line}",
            tool.name
        );
    }
    installed.is_ok()
}
