//! One file for each command, and the way to it.

mod bench;
mod completions;
mod doctor;
mod elect;
mod history;
mod ls;
mod man;
mod once;
mod run;
mod show;
mod unlock;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;
use tokio::runtime::Builder;

use crate::{
    cli::{Cli, Command, told},
    error::{Error, Result},
    exit::Exit,
    job::{launch, watchdog},
    store::Store,
};

/// The whole program.
pub(crate) fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return told(&error).into(),
    };
    let ended = match cli.command {
        // Before there is a runtime, whose threads an exec would not survive.
        Command::Launch(arguments) => launch::become_command(&arguments),
        Command::Watchdog(arguments) => watchdog::watch(&arguments),
        _ => on_a_runtime(cli),
    };
    ended
        .unwrap_or_else(|error| {
            eprintln!("lockkit: {error}");
            Exit::Failed
        })
        .into()
}

/// One thread: the child dies with the thread that started it.
fn on_a_runtime(cli: Cli) -> Result<Exit> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::of("no runtime can be made", error))?;
    runtime.block_on(command(cli))
}

async fn command(cli: Cli) -> Result<Exit> {
    let Cli { store, output, command } = cli;
    let connect = async || Store::connect(&store).await;
    match command {
        Command::Run(arguments) => run::run(*arguments, &store, &output).await,
        Command::Once(arguments) => once::once(*arguments, &store, &output).await,
        Command::Elect(arguments) => elect::elect(*arguments, &store, &output).await,
        Command::Ls(arguments) => ls::ls(&arguments, &connect().await?, &output).await,
        Command::Show(arguments) => show::show(&arguments, &connect().await?, &output).await,
        Command::Watch(arguments) => watch::watch(&arguments, &connect().await?, &output).await,
        Command::History(arguments) => history::history(&arguments, &connect().await?, &output).await,
        Command::Unlock(arguments) => unlock::unlock(&arguments, &connect().await?, &output).await,
        Command::Doctor => doctor::doctor(&connect().await?, &output).await,
        Command::Bench(arguments) => bench::bench(&arguments).await,
        Command::Completions { shell } => completions::completions(shell),
        Command::Man => man::man(),
        Command::Launch(arguments) => launch::become_command(&arguments),
        Command::Watchdog(arguments) => watchdog::watch(&arguments),
    }
}
