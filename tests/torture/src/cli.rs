//! The command line.

use std::{
    env, fs,
    io::{self, Read as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    check,
    child::{Program, child},
    commands::Commands,
    error::{Error, Result},
    report,
    run::{Arena, Checked, Round, check_folder},
    sim::simulate,
    site::{Elsewhere, Site},
    soak::soak,
    workload::Workload,
};

/// Tests lockkit's locks on your own store under faults, and checks every step.
#[derive(Debug, Parser)]
#[command(name = "lockkit-torture", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lets processes take locks during faults, and checks their history. The exit code is 0 if the
    /// locks kept every promise, 1 if a promise was broken, and 2 if the run proves nothing
    Run(Box<RunArguments>),
    /// Checks the history of an earlier round again
    Check {
        /// The folder of the round
        folder: PathBuf,
    },
    /// Runs lockkit's core on a scripted store with a simulated clock. The same seed always gives
    /// the same run
    Simulate {
        /// The first seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// The number of seeds to run
        #[arg(long, default_value_t = 1)]
        count: u64,
    },
    /// Does the work of a child process
    #[command(hide = true)]
    Child,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// The URL of the store. All users of the machine can see a command line, so pass a URL with a
    /// password in the variable or by `--url-from`
    #[arg(long, env = "LOCKKIT_TORTURE_URL", hide_env_values = true)]
    url: Option<String>,
    /// A file whose first line is the URL, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    url_from: Option<PathBuf>,
    /// The number of processes that take locks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// The number of tasks in each process
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: u32,
    /// The number of mutexes that two tasks rarely want at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    wide: u32,
    /// A lease to choose from; repeat this option for more
    #[arg(long = "ttl", value_name = "TIME", value_parser = humantime::parse_duration)]
    ttls: Vec<Duration>,
    /// The time in each round during which faults happen
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    span: Duration,
    /// Repeats rounds for this many hours (default: one round)
    #[arg(long)]
    hours: Option<f64>,
    /// The average time from the end of one fault to the start of the next
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = humantime::parse_duration)]
    pause: Duration,
    /// The extra time beyond the bounds of the contract, for a busy machine
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    slack: Duration,
    /// The seed of all random choices (default: random)
    #[arg(long)]
    seed: Option<u64>,
    /// Only this kind of fault, such as kill-holder; repeat this option for more; `none` means no
    /// fault
    #[arg(long = "fault", value_name = "KIND")]
    faults: Vec<String>,
    /// A command that causes a fault of the servers, such as `stop=kill -STOP 4711`. The program
    /// runs it in a shell, and --heal undoes it
    #[arg(long = "strike", value_name = "KIND=COMMAND")]
    strikes: Vec<String>,
    /// The command that undoes the --strike of the same kind
    #[arg(long = "heal", value_name = "KIND=COMMAND")]
    heals: Vec<String>,
    /// The words of your documentation, if it says that a --strike may break exclusion. Such a
    /// break is then no error
    #[arg(long = "weakens", value_name = "KIND=WORDS")]
    weakens: Vec<String>,
    /// The folder for histories and reports
    #[arg(long, value_name = "FOLDER", default_value = "lockkit-torture")]
    out: PathBuf,
}

/// The whole program. The exit code is 0 if the locks kept every promise, 1 if a promise was
/// broken, and 2 if the run proves nothing.
pub async fn command_line() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_error(&error),
    };
    let done = match cli.command {
        Command::Run(arguments) => torture(*arguments).await,
        Command::Check { folder } => check_again(&folder),
        Command::Simulate { seed, count } => beside_the_runtime(move || play(seed, count)),
        Command::Child => {
            child(async |url: &str| lockkit::connect(url).await).await.map(|()| ExitCode::SUCCESS)
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

/// A simulation creates its own runtime, so it needs a thread outside of the present runtime.
fn beside_the_runtime(
    work: impl FnOnce() -> Result<ExitCode> + Send + 'static,
) -> Result<ExitCode> {
    let done = std::thread::spawn(work).join();
    done.unwrap_or_else(|_| Err(Error::new("the simulation panicked")))
}

fn play(seed: u64, count: u64) -> Result<ExitCode> {
    let mut is_clean = true;
    for seed in seed..seed.saturating_add(count) {
        let simulated = simulate(seed);
        let verdict = check::check(&simulated.records, &simulated.terms);
        is_clean &= verdict.violations.is_empty();
        if count == 1 || !verdict.violations.is_empty() {
            println!(
                "{}",
                report::markdown(
                    &verdict,
                    &format!("seed {seed}, digest {:016x}", simulated.digest)
                )
            );
        }
    }
    if is_clean && count > 1 {
        println!("{count} seeds: the locks kept every promise");
    }
    Ok(exit_code(is_clean))
}

/// Prints help as usual. Prints a usage error without its URLs, because they may contain passwords.
fn print_error(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        };
    }
    let words: Vec<_> =
        env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let text = without_urls(error.render().to_string(), &words);
    eprint!("{text}");
    ExitCode::from(2)
}

/// Replaces in the text each argument and each option value that contains a URL.
fn without_urls(text: String, words: &[String]) -> String {
    let values = words.iter().flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        [Some(word.as_str()), value].into_iter().flatten()
    });
    let mut hidden: Vec<_> = values.filter(|value| value.contains("://")).collect();
    // One URL may be a part of another.
    hidden.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
    hidden.into_iter().fold(text, |text, value| text.replace(value, "(a URL)"))
}

async fn torture(arguments: RunArguments) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let url = arguments.url()?;
    if url.starts_with("memory:") {
        return Err(Error::new(
            "each process would have its own memory store; use `simulate`, which needs no server",
        ));
    }
    // Connects once here, because a round retries for a while. Between rounds the servers may need
    // that time.
    let reached = lockkit::connect(&url)
        .await
        .map_err(|error| Error::of("could not connect to the store", error))?;
    reached
        .shutdown()
        .await
        .map_err(|error| Error::of("could not disconnect from the store", error))?;
    let site: Box<dyn Site> = if arguments.strikes.is_empty() {
        Box::new(Elsewhere::new(url))
    } else {
        Box::new(Commands::new(url, &arguments.strikes, &arguments.heals, &arguments.weakens)?)
    };
    let arena = Arena::new(site, Program::this_program(["child"])?);
    let mut workload = Workload::new(arguments.processes, arguments.tasks);
    workload.wide = arguments.wide;
    workload.prefix = format!("torture-{:08x}", rand::random::<u32>());
    if !arguments.ttls.is_empty() {
        workload.ttls = arguments.ttls;
    }
    let round = Round {
        seed,
        span: arguments.span,
        calm: Duration::from_secs(3),
        workload,
        only: arguments.faults,
        pause: arguments.pause,
        slack: arguments.slack,
        folder: arguments.out,
    };
    println!("seed {seed}");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(watching)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(watching)?;
    // Dropping `rounds` kills its processes.
    tokio::select! {
        done = rounds(&arena, round, arguments.hours) => done,
        _ = interrupt.recv() => Err(Error::new("the run was interrupted")),
        _ = terminate.recv() => Err(Error::new("the run was interrupted")),
    }
}

fn watching(error: io::Error) -> Error {
    Error::of("could not watch for Ctrl-C", error)
}

async fn rounds(arena: &Arena, round: Round, hours: Option<f64>) -> Result<ExitCode> {
    let Some(hours) = hours else {
        let outcome = arena.play(&round, |plan| print!("{plan}")).await?;
        let report = outcome.write(&round.folder)?;
        let violations = outcome.verdict.violations.len();
        println!("{}", summary(violations, outcome.error.as_deref()));
        println!("{}", report.display());
        return judged(violations, outcome.error);
    };
    let time = Duration::try_from_secs_f64(hours * 3600.0)
        .map_err(|error| Error::of(format!("cannot use --hours {hours}"), error))?;
    let next = |seed| {
        let mut next = round.clone();
        next.seed = seed;
        next.workload.prefix = format!("{}-{seed}", round.workload.prefix);
        next.folder = round.folder.join(format!("seed-{seed}"));
        next
    };
    let total = soak(arena, next, round.seed, time, false, |seed, total| {
        let summary = summary(total.violations.len(), total.error.as_deref());
        println!("seed {seed}: {} grants so far; {summary}", total.figures.grants);
    });
    let total = total.await;
    let path = round.folder.join("total.md");
    fs::create_dir_all(&round.folder)
        .and_then(|()| fs::write(&path, total.markdown(arena.name())))
        .map_err(|error| Error::of(format!("could not write {}", path.display()), error))?;
    println!("{}", path.display());
    judged(total.violations.len(), total.error)
}

/// A broken promise is the result even if the run also failed. Without a broken promise, the error
/// is the result.
fn judged(violations: usize, error: Option<String>) -> Result<ExitCode> {
    match error.map(Error::new) {
        Some(error) if violations == 0 => Err(error),
        Some(error) => {
            eprintln!("error: {error}");
            Ok(ExitCode::FAILURE)
        }
        None => Ok(exit_code(violations == 0)),
    }
}

fn summary(violations: usize, error: Option<&str>) -> String {
    match violations {
        0 if error.is_some() => "the run proves nothing".to_owned(),
        0 => "the locks kept every promise".to_owned(),
        1 => "1 promise was broken".to_owned(),
        more => format!("{more} promises were broken"),
    }
}

fn exit_code(is_clean: bool) -> ExitCode {
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check_again(folder: &std::path::Path) -> Result<ExitCode> {
    let Checked { verdict, error, report } = check_folder(folder)?;
    println!("{}", summary(verdict.violations.len(), error.as_deref()));
    println!("{}", report.display());
    judged(verdict.violations.len(), error)
}

impl RunArguments {
    fn url(&self) -> Result<String> {
        let text = match (&self.url, &self.url_from) {
            (Some(url), _) => url.clone(),
            (None, Some(file)) if file.as_os_str() == "-" => {
                let mut text = String::new();
                let read = io::stdin().read_to_string(&mut text);
                read.map_err(|error| Error::of("could not read standard input", error))?;
                text
            }
            (None, Some(file)) => fs::read_to_string(file)
                .map_err(|error| Error::of(format!("could not read {}", file.display()), error))?,
            (None, None) => {
                return Err(Error::new(
                    "no store was given; give its URL: --url redis://127.0.0.1:6379",
                ));
            }
        };
        let first = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
        first.map(str::to_owned).ok_or_else(|| Error::new("the input has no URL in its first line"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_argument_is_reported_without_its_password() {
        for words in [
            &["run", "--ttl=redis://:secret@h"][..],
            &["run", "--ttl", "redis://:secret@h"],
            &["run", "redis://:secret@h"],
            &["run", "--utl=redis://:secret@h"],
            &["run", "--url", "redis://h", "redis://h?password=secret"],
        ] {
            let error = Cli::try_parse_from([&["lockkit-torture"], words].concat()).unwrap_err();
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            let text = without_urls(error.render().to_string(), &words);
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn an_error_neither_replaces_nor_excuses_a_verdict() {
        assert_eq!(judged(0, None).unwrap(), ExitCode::SUCCESS);
        assert_eq!(judged(1, None).unwrap(), ExitCode::FAILURE);
        assert_eq!(judged(1, Some("the register".to_owned())).unwrap(), ExitCode::FAILURE);
        assert_eq!(
            judged(0, Some("the register".to_owned())).unwrap_err().to_string(),
            "the register"
        );
    }
}
