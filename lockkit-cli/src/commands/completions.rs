//! `lockkit completions`

use std::io;

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::{cli::Cli, error::Result, exit::Exit};

pub(crate) fn completions(shell: Shell) -> Result<Exit> {
    generate(shell, &mut Cli::command(), "lockkit", &mut io::stdout());
    Ok(Exit::Done)
}
