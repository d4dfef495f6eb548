//! What becomes the command.

use crate::{cli::LaunchArguments, error::Result, exit::Exit};

pub(crate) fn become_command(arguments: &LaunchArguments) -> Result<Exit> {
    todo!()
}
