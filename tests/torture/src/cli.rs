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
    /// Lets processes take locks during faults, and checks their history: exit code 0 if every
    /// promise was kept
    Run(Box<RunArguments>),
    /// Checks the history of an earlier round again
    Check {
        /// Its folder
        folder: PathBuf,
    },
    /// Runs the core on a scripted store with a simulated clock: a seed always gives the same run
    Simulate {
        /// The first seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many seeds
        #[arg(long, default_value_t = 1)]
        count: u64,
    },
    /// Does the work of a child process
    #[command(hide = true)]
    Child,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// The store, as `lockkit::connect` takes it. All users of the machine can see a command line:
    /// pass a URL with a password by `--url-from` or in the variable
    #[arg(long, env = "LOCKKIT_TORTURE_URL", hide_env_values = true)]
    url: Option<String>,
    /// A file whose first line is the URL, or (-) standard input
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    url_from: Option<PathBuf>,
    /// Processes that take locks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    processes: u32,
    /// Tasks of each process
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tasks: u32,
    /// Mutexes that two tasks rarely want at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    wide: u32,
    /// A lease to choose from; repeat it for more
    #[arg(long = "ttl", value_name = "TIME", value_parser = humantime::parse_duration)]
    ttls: Vec<Duration>,
    /// How long faults happen in a round
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    span: Duration,
    /// Repeats rounds for this many hours; else there is one round
    #[arg(long)]
    hours: Option<f64>,
    /// The time from the end of one fault to the next, on average
    #[arg(long, value_name = "TIME", default_value = "1500ms", value_parser = humantime::parse_duration)]
    pause: Duration,
    /// The time that a busy machine needs beyond the bounds of the contract
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    slack: Duration,
    /// Determines all random choices
    #[arg(long)]
    seed: Option<u64>,
    /// Only this kind of fault, such as kill-holder; repeat it for more, `none` for none
    #[arg(long = "fault", value_name = "KIND")]
    faults: Vec<String>,
    /// A fault of the servers: `stop=kill -STOP 4711` runs this command in a shell, and --heal
    /// undoes it
    #[arg(long = "strike", value_name = "KIND=COMMAND")]
    strikes: Vec<String>,
    /// The command that undoes the fault of --strike with the same name
    #[arg(long = "heal", value_name = "KIND=COMMAND")]
    heals: Vec<String>,
    /// Why a fault of --strike may break exclusion, in the words of your documentation: such a
    /// break is then no error
    #[arg(long = "weakens", value_name = "KIND=WORDS")]
    weakens: Vec<String>,
    /// Where histories and reports are written
    #[arg(long, value_name = "FOLDER", default_value = "lockkit-torture")]
    out: PathBuf,
}

/// The whole program. The exit code is 0 if every promise was kept, 1 if one was broken, and 2 if
/// the run proves nothing.
pub async fn command_line() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return told(&error),
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

/// A simulation makes its own runtime, and so needs a thread outside of this one.
fn beside_the_runtime(
    work: impl FnOnce() -> Result<ExitCode> + Send + 'static,
) -> Result<ExitCode> {
    let done = std::thread::spawn(work).join();
    done.unwrap_or_else(|_| Err(Error::new("the simulation has panicked")))
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
        println!("{count} seeds: every promise was kept");
    }
    Ok(exit_code(is_clean))
}

/// Prints help as usual. Prints a usage error without the URLs in it, because they may hold
/// passwords.
fn told(error: &clap::Error) -> ExitCode {
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

/// Replaces in the text each argument that holds a URL, and each option value that does.
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
            "each process would have a memory store of its own; `simulate` needs no server",
        ));
    }
    // Connects once here, because a round retries for a while: between rounds the servers may need
    // that time.
    let reached = lockkit::connect(&url)
        .await
        .map_err(|error| Error::of("the store can't be reached", error))?;
    reached.shutdown().await.map_err(|error| Error::of("the store can't be left", error))?;
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
    // When `rounds` is dropped, its processes are killed.
    tokio::select! {
        done = rounds(&arena, round, arguments.hours) => done,
        _ = interrupt.recv() => Err(Error::new("interrupted")),
        _ = terminate.recv() => Err(Error::new("interrupted")),
    }
}

fn watching(error: io::Error) -> Error {
    Error::of("can't watch for Ctrl-C", error)
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
        .map_err(|error| Error::of(format!("--hours {hours}"), error))?;
    let next = |seed| {
        let mut next = round.clone();
        next.seed = seed;
        next.workload.prefix = format!("{}-{seed}", round.workload.prefix);
        next.folder = round.folder.join(format!("seed-{seed}"));
        next
    };
    let total = soak(arena, next, round.seed, time, false, |seed, total| {
        let summary = summary(total.violations.len(), total.error.as_deref());
        println!("seed {seed}: {} grants so far, {summary}", total.figures.grants);
    });
    let total = total.await;
    let path = round.folder.join("total.md");
    fs::create_dir_all(&round.folder)
        .and_then(|()| fs::write(&path, total.markdown(arena.name())))
        .map_err(|error| Error::of(format!("{} can't be written", path.display()), error))?;
    println!("{}", path.display());
    judged(total.violations.len(), total.error)
}

/// A broken promise counts, whatever else failed. Without a broken promise, the error is the
/// result.
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
        0 if error.is_some() => "nothing can be told".to_owned(),
        0 => "every promise was kept".to_owned(),
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
                read.map_err(|error| Error::of("standard input can't be read", error))?;
                text
            }
            (None, Some(file)) => fs::read_to_string(file)
                .map_err(|error| Error::of(format!("{} can't be read", file.display()), error))?,
            (None, None) => return Err(Error::new("which store? --url redis://127.0.0.1:6379")),
        };
        let first = text.lines().next().map(str::trim).filter(|line| !line.is_empty());
        first.map(str::to_owned).ok_or_else(|| Error::new("there is no URL"))
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
    fn an_error_is_no_verdict_and_no_excuse() {
        assert_eq!(judged(0, None).unwrap(), ExitCode::SUCCESS);
        assert_eq!(judged(1, None).unwrap(), ExitCode::FAILURE);
        assert_eq!(judged(1, Some("the register".to_owned())).unwrap(), ExitCode::FAILURE);
        assert_eq!(
            judged(0, Some("the register".to_owned())).unwrap_err().to_string(),
            "the register"
        );
    }
}
