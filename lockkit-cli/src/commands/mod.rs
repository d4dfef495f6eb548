//! Runs the command that the user typed; each command has a file of its own.

#[cfg(feature = "bench")]
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

use std::{env, ffi::OsString, io, process::ExitCode};

use clap::Parser as _;
use tokio::runtime::Builder;

use crate::{
    cli::{Cli, Command, StoreArguments, check_command, told},
    error::{Error, Result},
    exit::Exit,
    job::{launch, watchdog},
    output::aside,
    store::Store,
};

/// Runs the whole program.
pub(crate) fn main() -> ExitCode {
    // All arguments after `bench` belong to lockkit-bench, even --help and --url.
    let mut words = env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "bench") {
        return ended(measured(&words.collect::<Vec<_>>(), None));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ended(told(&error).map(ExitCode::from)),
    };
    if let Err(error) = check_command(&cli) {
        return ended(Err(error));
    }
    ended(match cli.command {
        Command::Bench(arguments) => measured(&arguments.arguments, Some(&cli.store)),
        // The launcher runs before there is a runtime, because an exec ends the runtime's threads.
        Command::Launch(arguments) => launch::become_command(&arguments).map(ExitCode::from),
        Command::Watchdog(arguments) => watchdog::watch(&arguments).map(ExitCode::from),
        _ => on_a_runtime(cli).map(ExitCode::from),
    })
}

fn ended(ended: Result<ExitCode>) -> ExitCode {
    match ended {
        Ok(code) => code,
        Err(error) if error.is_reader_gone() => Exit::Done.into(),
        Err(error) => {
            aside(format_args!("lockkit: {error}"));
            Exit::Failed.into()
        }
    }
}

/// Runs a bench on its own runtime, with the store that the arguments or else the environment name.
#[cfg(feature = "bench")]
fn measured(arguments: &[OsString], store: Option<&StoreArguments>) -> Result<ExitCode> {
    bench::bench(arguments, crate::store::url(store.unwrap_or(&StoreArguments::default()))?)
}

#[cfg(not(feature = "bench"))]
fn measured(_: &[OsString], _: Option<&StoreArguments>) -> Result<ExitCode> {
    Err(Error::new("this lockkit has no benchmarks; build it with the cargo feature \"bench\""))
}

/// The runtime has one thread, because the child dies with the thread that started it.
fn on_a_runtime(cli: Cli) -> Result<Exit> {
    if cli.output.verbose > 1 {
        let log = tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false);
        // If the log can't write to standard error, it must not complain there either.
        let log = log.log_internal_errors(false);
        log.with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG).init();
    }
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::of("could not start a tokio runtime", error))?;
    let ended = runtime.block_on(command(cli));
    // A normal shutdown would wait for a name lookup that gets no answer.
    runtime.shutdown_background();
    ended
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
        Command::History(arguments) => {
            history::history(&arguments, &connect().await?, &output).await
        }
        Command::Unlock(arguments) => unlock::unlock(&arguments, &connect().await?, &output).await,
        Command::Doctor => doctor::doctor(&connect().await?, &output).await,
        Command::Bench(_) => Err(Error::new(
            "this command ran before the runtime started; report this as a bug of lockkit",
        )),
        Command::Completions { shell } => completions::completions(shell),
        Command::Man => man::man(),
        Command::Launch(arguments) => launch::become_command(&arguments),
        Command::Watchdog(arguments) => watchdog::watch(&arguments),
    }
}
