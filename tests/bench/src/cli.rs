//! The command line.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    address,
    children::WorkerCommand,
    error::{Error, Result},
    options::Options,
    peer::Peer,
    progress::Shown,
    report::{Outcome, Report, Scenario, Side, Verdict, compare, html, markdown, picture},
    run::run,
    target::Address,
    worker::worker,
};

/// Measures lockkit's locks on your own stores, and compares them with other locks.
#[derive(Debug, Parser)]
#[command(name = "lockkit-bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures the stores (the default command)
    Run(RunArguments),
    /// Compares two reports. The exit code is 0 if nothing got worse, 1 if a figure got worse, and
    /// 2 if the reports can't be compared
    Compare {
        /// report.json of the earlier run
        old: PathBuf,
        /// report.json of the later run
        new: PathBuf,
    },
    /// Writes report.md, report.html and own-names.svg from a report.json
    Report {
        /// report.json of a run
        json: PathBuf,
        /// The folder to write to (default: the folder of the JSON file)
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
    },
    /// Does the work of a child process
    #[command(hide = true)]
    Worker,
}

#[derive(Debug, Args)]
struct RunArguments {
    /// A store, as `URL` or `label=URL`; repeat this option for each store
    #[arg(long = "url", value_name = "[LABEL=]URL")]
    urls: Vec<String>,
    /// A file with more stores, one on each line, or - for standard input. It hides passwords,
    /// because all users of the machine can read command lines
    #[arg(long, value_name = "FILE")]
    urls_from: Option<PathBuf>,
    /// A name for a store; repeat this option for each store, in the order of the URLs
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Measures fewer and shorter cases, to check that everything works
    #[arg(long)]
    quick: bool,
    /// How many times to measure each case on each store
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
    /// The length of each measurement, such as 400ms
    #[arg(long, value_parser = humantime::parse_duration)]
    slice: Option<Duration>,
    /// Measures only this scenario, such as hot-name; repeat this option for more scenarios
    #[arg(long, value_name = "SCENARIO", num_args = 1.., value_parser = parse_scenario)]
    only: Vec<Scenario>,
    /// Requests per second of the open loop (default: a share of the slowest store's rate)
    #[arg(long)]
    rate: Option<f64>,
    /// Another lock library to measure, on one Redis server
    #[arg(long, value_name = "LIBRARY")]
    peer: Option<Peer>,
    /// The folder to write report.json, report.md, report.html and own-names.svg to
    #[arg(long, value_name = "FOLDER", default_value = "lockkit-bench-report")]
    out: PathBuf,
}

/// Runs the whole program: reads the command line, does the work, and reports the result.
///
/// The exit code is 0 on success, and 1 if a comparison found a figure that got worse. It is 2 for
/// any error, which includes a run that could measure nothing.
pub async fn command_line() -> ExitCode {
    command_line_from(env::args_os(), ["worker"]).await
}

/// As [`command_line`], for a program that offers this program as a subcommand. `words` begin with
/// the name that the help shows. When a child process starts that program with `worker_words`, the
/// program must call this function with the word `worker`.
pub async fn command_line_from(
    words: impl IntoIterator<Item = OsString>,
    worker_words: impl IntoIterator<Item = &'static str>,
) -> ExitCode {
    let words: Vec<_> = words.into_iter().collect();
    let cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(error) => return print_error(&error, &words),
    };
    let start = || WorkerCommand::this_program(worker_words);
    let done = match cli.command {
        None => measure(cli.run, start).await,
        Some(Command::Run(arguments)) => measure(arguments, start).await,
        Some(Command::Compare { old, new }) => compare_files(&old, &new),
        Some(Command::Report { json, out }) => {
            let beside =
                json.parent().map(|folder| Path::new(".").join(folder)).unwrap_or_default();
            render(&json, &out.unwrap_or(beside))
        }
        Some(Command::Worker) => worker().await.map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::from(2)
    })
}

/// Prints help to the standard output. An error repeats the mistyped words without their passwords.
fn print_error(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        };
    }
    let words = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    eprint!("{}", address::without_secrets(&error.render().to_string(), words));
    ExitCode::from(2)
}

async fn measure(
    arguments: RunArguments,
    worker: impl FnOnce() -> Result<WorkerCommand>,
) -> Result<ExitCode> {
    let out = arguments.out.clone();
    let options = arguments.options(worker)?;
    // A folder that cannot be made is an error before the run takes its time.
    let of = |error| Error::of(format!("could not create the folder {}", out.display()), error);
    fs::create_dir_all(&out).map_err(of)?;
    let stop = stop()?;
    eprintln!(
        "measuring {} in {} of {}; this takes about {}",
        counted(options.addresses.len(), "store"),
        counted(options.rounds, "round"),
        humantime::format_duration(options.slice),
        humantime::format_duration(Duration::from_secs(options.estimate().as_secs().max(1)))
    );
    let report = run(&options, &Shown::new(), stop).await?;
    write(&out, "report.json", &report.to_json()?)?;
    write_readable(&report, &out)?;
    if !has_figures(&report) {
        return Err(Error::new(
            "nothing could be measured; the report gives the reason for each case",
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn counted(number: impl std::fmt::Display, what: &str) -> String {
    let number = number.to_string();
    if number == "1" { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn has_figures(report: &Report) -> bool {
    let of_lockkit = |outcome: &Outcome| outcome.side == Side::Lockkit;
    let is_measured = |outcome: &Outcome| matches!(outcome.verdict, Verdict::Measured { .. });
    report.outcomes.iter().any(|outcome| of_lockkit(outcome) && is_measured(outcome))
}

impl RunArguments {
    fn options(self, worker: impl FnOnce() -> Result<WorkerCommand>) -> Result<Options> {
        let mut lines = self.urls;
        if let Some(file) = &self.urls_from {
            lines.extend(url_lines(&read(file)?));
        }
        let mut addresses =
            lines.iter().map(|line| parse_address(line)).collect::<Result<Vec<_>>>()?;
        if addresses.is_empty() {
            return Err(Error::new(
                "no store was given; give at least one: lockkit-bench --url \
                 redis://127.0.0.1:6379/",
            ));
        }
        if !self.labels.is_empty() && self.labels.len() != addresses.len() {
            return Err(Error::new(format!(
                "{} labels for {} URLs; give a label for each URL, or write --url label=URL",
                self.labels.len(),
                addresses.len()
            )));
        }
        for (address, label) in addresses.iter_mut().zip(self.labels) {
            address::check_label(&label)?;
            address.label = Some(label);
        }
        if let Some(rate) = self.rate
            && !(0.1..=1_000_000.0).contains(&rate)
        {
            return Err(Error::new("--rate must be between 0.1 and 1,000,000 requests per second"));
        }
        let worker = worker()?;
        let mut options = if self.quick {
            Options::quick(addresses, worker)
        } else {
            Options::full(addresses, worker)
        };
        options.rounds = self.rounds.unwrap_or(options.rounds);
        options.slice = self.slice.unwrap_or(options.slice);
        options.only = self.only;
        options.rate_per_second = self.rate;
        options.peer = self.peer;
        Ok(options)
    }
}

/// Completes at the first signal to end. A second signal ends the program at once.
fn stop() -> Result<impl Future<Output = ()>> {
    let of = |error| Error::of("could not watch for Ctrl-C", error);
    let mut signals = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        signals.push(signal(kind).map_err(of)?);
    }
    let (sender, receiver) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        let mut next = async || {
            let waits = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
            futures_util::future::select_all(waits).await;
        };
        next().await;
        eprintln!("stopping: releasing all locks; press Ctrl-C again to end at once");
        let _ = sender.send(());
        next().await;
        std::process::exit(130);
    });
    Ok(async {
        let _ = receiver.await;
    })
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let file = folder.join(name);
    fs::write(&file, text)
        .map_err(|error| Error::of(format!("could not write {}", file.display()), error))?;
    eprintln!("wrote {}", file.display());
    Ok(())
}

/// Writes the report as Markdown and as HTML, and one plot of it.
fn write_readable(report: &Report, folder: &Path) -> Result<()> {
    write(folder, "report.md", &markdown(report))?;
    write(folder, "report.html", &html(report))?;
    let name = "own-names.svg";
    if let Some(svg) = picture(report) {
        return write(folder, name, &svg);
    }
    // The plot of an earlier run does not belong to this report.
    match fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::of(format!("could not remove the earlier {name}"), error))
        }
        _ => Ok(()),
    }
}

fn compare_files(old: &Path, new: &Path) -> Result<ExitCode> {
    let comparison = compare(&Report::read(old)?, &Report::read(new)?);
    print!("{comparison}");
    Ok(if !comparison.is_comparable() {
        ExitCode::from(2)
    } else if comparison.is_regression() {
        ExitCode::from(1)
    } else {
        ExitCode::SUCCESS
    })
}

fn render(json: &Path, out: &Path) -> Result<ExitCode> {
    fs::create_dir_all(out).map_err(|error| {
        Error::of(format!("could not create the folder {}", out.display()), error)
    })?;
    write_readable(&Report::read(json)?, out)?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> Result<String> {
    let text = if file == Path::new("-") {
        io::read_to_string(io::stdin())
    } else {
        fs::read_to_string(file)
    };
    text.map_err(|error| Error::of(format!("could not read URLs from {}", file.display()), error))
}

/// All lines except blank lines and comments, which begin with `#`.
fn url_lines(text: &str) -> impl Iterator<Item = String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned)
}

fn parse_address(word: &str) -> Result<Address> {
    let (label, url) = address::parse(word)?;
    Ok(Address { url, label })
}

fn parse_scenario(word: &str) -> Result<Scenario> {
    let json = serde_json::Value::String(word.to_owned());
    serde_json::from_value(json).map_err(|error| Error::of("unknown scenario", error))
}
