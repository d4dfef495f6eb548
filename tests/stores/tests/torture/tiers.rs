//! Runs the tiers: short rounds with every change, minutes on every store and topology, and hours.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_fixture::slack;
use lockkit_torture::{
    run::{Arena, Outcome, Round},
    soak::{Total, overview, soak},
    workload::Workload,
};
use tokio::runtime::Runtime;

use crate::{
    Cli, program,
    site::{self, Start},
};

/// The name of a site, and how to start its servers.
pub(crate) type Place = (&'static str, Start);

/// One of each kind of store.
const FIRST: [&str; 4] = ["redis", "zookeeper", "mariadb", "mariadb-pessimistic"];
/// How long a round applies faults.
const SHORT: Duration = Duration::from_secs(20);
const MIDDLE: Duration = Duration::from_secs(35);
const LONG: Duration = Duration::from_secs(60);
/// How many rounds of the first tier are played until one did enough work.
const MOST_ROUNDS: u64 = 8;
/// How many writes the register must have accepted in a round.
const LEAST_WRITES: u64 = 20;
/// In every fourth round of the third tier, each process has this many tasks, most of which wait.
const CROWD: u32 = 250;
/// For sites where a hold shows a fault only if it outlasts a session. There are enough names for
/// all claims that wait then.
const LONG_HOLDS: (&str, Duration, u32) = ("zookeeper-deposed", Duration::from_secs(20), 10);
/// How many names the third tier uses.
const NAMES: u32 = 10_000;

pub(crate) fn first_tier() -> Vec<Place> {
    site::all().into_iter().filter(|(name, _)| FIRST.contains(name)).collect()
}

fn round(seed: u64, span: Duration, folder: PathBuf) -> Round {
    let mut workload = Workload::new(3, 6);
    // The prefix has characters that are special in some stores (C11).
    workload.prefix = format!(" tor/{{ture}}%2F*?'\\é {seed}");
    // A busy machine can't end a lease of this length: if it is lost without a fault, it was not
    // renewed.
    workload.ttls.push(Duration::from_secs(4));
    let calm = Duration::from_secs(3);
    let pause = Duration::from_millis(700);
    Round { seed, span, calm, workload, only: Vec::new(), pause, slack: slack(), folder }
}

/// Rounds of the first tier. Each must keep every promise, and one must do enough work. On a busy
/// machine, the servers may need most of a round to start again after a fault.
pub(crate) fn first(place: Place, seed: u64) -> Result<(), Failed> {
    let (name, start) = place;
    // The folder remains after a failure, for a look at it.
    let folder = tempfile::tempdir()?.keep();
    let mut text = String::new();
    for seed in seed..seed + MOST_ROUNDS {
        let round = round(seed, SHORT, folder.join(seed.to_string()));
        let outcome = play_first(name, start, &round);
        let told = match &outcome {
            Ok(outcome) => told(outcome),
            Err(error) => error.message().unwrap_or("it failed").to_owned(),
        };
        text.push_str(&format!("\nseed {seed}: {told}"));
        match outcome {
            Ok(outcome) if !has_a_fault(&outcome) => {
                if is_worth_something(&outcome, &round) {
                    return Ok(fs::remove_dir_all(folder)?);
                }
            }
            _ => break,
        }
    }
    Err(format!("{name}: see {}{text}", folder.display()).into())
}

fn has_a_fault(outcome: &Outcome) -> bool {
    outcome.error.is_some() || !outcome.verdict.violations.is_empty()
}

fn play_first(name: &str, start: Start, round: &Round) -> Result<Outcome, Failed> {
    // This is outside the runtime, because a site may have a runtime of its own.
    let arena = Arena::new(start()?, program()?);
    Runtime::new()?.block_on(async {
        let outcome =
            arena.play(round, |plan| println!("{name}, seed {}:\n{plan}", round.seed)).await?;
        outcome.write(&round.folder)?;
        Ok(outcome)
    })
}

/// Whether there was enough work, and each planned kind of fault: a run without events finds
/// nothing.
fn is_worth_something(outcome: &Outcome, round: &Round) -> bool {
    let figures = &outcome.verdict.figures;
    figures.grants > least_grants(round)
        && figures.accepted > LEAST_WRITES
        && figures.losses > 0
        && figures.faults.len() >= 4
        && outcome.missing().is_empty()
}

fn least_grants(round: &Round) -> u64 {
    u64::from(round.workload.processes * round.workload.tasks) * 4
}

/// Work and faults that the rounds on one store lack, as in the first tier, but only if they were
/// asked for.
fn lacks(total: &Total) -> Vec<String> {
    let figures = &total.figures;
    let rounds = u64::from(total.rounds);
    let least = least_grants(&round(0, MIDDLE, PathBuf::new()));
    let mut lacks: Vec<_> =
        total.error.iter().map(|error| format!("stopped by an error: {error}")).collect();
    if figures.grants <= least * rounds || figures.accepted <= LEAST_WRITES * rounds {
        lacks.push(format!("too little: {} grants, {} writes", figures.grants, figures.accepted));
    }
    if !total.missing.is_empty() {
        lacks.push(format!("planned, but never happened: {:?}", total.missing));
    }
    lacks
}

fn told(outcome: &Outcome) -> String {
    let figures = &outcome.verdict.figures;
    let mut text = format!(
        "{} grants, {} losses, {} writes accepted and {} refused, faults {:?}",
        figures.grants, figures.losses, figures.accepted, figures.refused, figures.faults
    );
    let missing = outcome.missing();
    let skipped = &outcome.skipped;
    text.push_str(&format!("\nnever done: {missing:?}; no time for: {skipped:?}"));
    if let Some(error) = &outcome.error {
        text.push_str(&format!("\nit proves nothing: {error}"));
    }
    for violation in &outcome.verdict.violations {
        text.push_str(&format!("\n{}: {}", violation.rule, violation.what));
    }
    text
}

/// The result of one store.
struct Done {
    name: &'static str,
    result: Result<Total, Failed>,
}

/// The second tier, or with `--hours` the third.
pub(crate) fn run(cli: &Cli) -> Result<ExitCode, Failed> {
    let mut places = site::all();
    if let Some(unknown) =
        cli.stores.iter().find(|name| places.iter().all(|(known, _)| known != name))
    {
        let known: Vec<_> = places.iter().map(|(name, _)| *name).collect();
        return Err(
            format!("the store {unknown} is unknown; known stores: {}", known.join(", ")).into()
        );
    }
    places
        .retain(|(name, _)| cli.stores.is_empty() || cli.stores.iter().any(|store| store == name));
    let seed = cli.seed.unwrap_or_else(|| rand::random::<u32>().into());
    let lanes = cli.lanes.clamp(1, places.len());
    println!("seed {seed}, {} stores, {lanes} at a time", places.len());
    let time = Duration::try_from_secs_f64(cli.hours.unwrap_or(0.0) * 3600.0)?;
    let share = time * u32::try_from(lanes)? / u32::try_from(places.len())?;
    let start = Instant::now();
    let waiting = Mutex::new(VecDeque::from(places));
    let done = Mutex::new(Vec::new());
    let lane = || {
        loop {
            let Some(place) = locked(&waiting).pop_front() else { break };
            let result = on_one(place, seed, share, cli);
            let line = match &result {
                Ok(total) => {
                    let grants = total.figures.grants;
                    let broken = total.violations.len();
                    format!(
                        "{grants} grants, {broken} broken promises. {}",
                        lacks(total).join("; ")
                    )
                }
                Err(error) => error.message().unwrap_or("it failed").to_owned(),
            };
            println!("[{:>6.1} s] {}: {line}", start.elapsed().as_secs_f64(), place.0);
            locked(&done).push(Done { name: place.0, result });
        }
    };
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(lane);
        }
    });
    report(&locked(&done), &cli.out)
}

fn on_one((name, start): Place, seed: u64, share: Duration, cli: &Cli) -> Result<Total, Failed> {
    let is_long = cli.hours.is_some();
    let next = |seed: u64| {
        let folder = cli.out.join(name).join(format!("seed-{seed}"));
        let mut round = round(seed, if is_long { LONG } else { MIDDLE }, folder);
        round.only.clone_from(&cli.faults);
        if name == LONG_HOLDS.0 {
            (round.workload.longest_hold, round.workload.mutexes) = (LONG_HOLDS.1, LONG_HOLDS.2);
        }
        if is_long {
            round.workload.wide = NAMES;
            if seed.is_multiple_of(4) {
                round.workload.tasks = CROWD;
            }
        }
        round
    };
    let arena = Arena::new(start()?, program()?);
    Runtime::new()?.block_on(async {
        let tell = |seed: u64, total: &Total| {
            println!("{name}, seed {seed}: {} grants so far", total.figures.grants);
        };
        Ok(soak(&arena, next, seed, share, true, tell).await)
    })
}

/// Writes the results of all stores, and returns whether all went well.
fn report(done: &[Done], folder: &Path) -> Result<ExitCode, Failed> {
    let totals: Vec<_> =
        done.iter().filter_map(|it| Some((it.name, it.result.as_ref().ok()?))).collect();
    let mut text = format!("# All\n\n{}\n", overview(&totals));
    let mut is_clean = true;
    for Done { name, result } in done {
        match result {
            Ok(total) => {
                let lacks = lacks(total);
                is_clean &= total.violations.is_empty() && lacks.is_empty();
                text.push_str(&total.markdown(name));
                if !lacks.is_empty() {
                    text.push_str(&format!("\nIt proves nothing: {}\n", lacks.join("; ")));
                }
            }
            Err(error) => {
                is_clean = false;
                text.push_str(&format!(
                    "## {name}\n\nIt could not be done: {}\n",
                    error.message().unwrap_or("")
                ));
            }
        }
        text.push('\n');
    }
    fs::create_dir_all(folder)?;
    let path = folder.join("total.md");
    fs::write(&path, text)?;
    println!("{}", path.display());
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
