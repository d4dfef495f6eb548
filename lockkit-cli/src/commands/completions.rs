//! Runs `lockkit completions`.

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};

use crate::{cli::Cli, error::Result, exit::Exit, output};

pub(crate) fn completions(shell: Shell) -> Result<Exit> {
    let mut script = Vec::new();
    generate(shell, &mut visible(), "lockkit", &mut script);
    output::whole(&script)?;
    Ok(Exit::Done)
}

/// The commands that a user types. The generators would include the hidden ones.
fn visible() -> Command {
    let cli = Cli::command();
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let visible = Command::new("lockkit").args(cli.get_arguments().cloned());
    visible.subcommands(commands).version(env!("CARGO_PKG_VERSION"))
}
