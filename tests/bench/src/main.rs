//! The command line of lockkit-bench.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    lockkit_bench::command_line().await
}
