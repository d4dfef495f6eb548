//! The command line of lockkit-torture.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    lockkit_torture::command_line().await
}
