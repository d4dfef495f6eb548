//! Runs the tests, after it has installed the servers.

mod failures;
mod load;
mod pool;
mod programs;
mod report;
mod tally;
mod tier;

use std::{env, fmt::Write as _, process::Command, thread, time::Instant};

use anyhow::{Result, bail, ensure};

use self::report::Report;
pub(crate) use self::tier::Tier;
use crate::{
    book, install, mysql,
    run::{cargo, target},
    server, valkey,
};

/// The words of the command before the user's arguments.
const CHOSEN: [&str; 4] = ["test", "--workspace", "--all-features", "--no-fail-fast"];
const EXAMPLES_OF_DOCUMENTATION: [&str; 4] = ["test", "--workspace", "--all-features", "--doc"];
/// This tests the errors for stores whose features are off.
const WITHOUT_STORES: [&str; 6] =
    ["test", "-p", "lockkit-cli", "--no-default-features", "--test", "without_stores"];

/// The models of protocols between threads without a mutex. loom tries every interleaving.
const MODELS: [&str; 5] = ["test", "-p", "lockkit-core", "--lib", "loom_"];
/// The most switches of a thread that need not wait. Each known fault of a model appears with
/// fewer.
const MOST_PREEMPTIONS: &str = "3";

/// A failure shows the expected value, so it needs no backtrace. The resolution of a backtrace
/// keeps a core busy for longer than many leases of these tests, and the mutants panic often.
const NO_BACKTRACE: (&str, &str) = ("RUST_BACKTRACE", "0");

/// Tests of stores wait for most of their time. So two cores can run this many tests at once, and
/// with fewer they would idle.
const LEAST_AT_ONCE: usize = 6;

/// Test programs wait for servers, and for leases to end.
const PROGRAMS_FOR_EACH_CORE: usize = 2;

/// All tests together keep two cores busy with one program less.
const FEWER_PROGRAMS: usize = 1;

/// This variable sets how many tests a test program runs at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// With this variable the conformance suite runs each case on one lock of a store instead of all:
/// tests/stores/tests/conformance.rs.
const ONE_LOCK: &str = "LOCKKIT_TEST_ONE_LOCK";

/// With this variable the conformance suite drops fewer calls than usual:
/// tests/conformance/src/cases/c6_cancellation.rs.
const FEWER_DROPPED: (&str, &str) = ("LOCKKIT_TEST_CANCELLATIONS", "1000");

/// With this variable the simulation plays more runs than in the everyday tests:
/// tests/torture/tests/simulation.rs.
const MORE_SEEDS: (&str, &str) = ("LOCKKIT_TORTURE_SEEDS", "0..5000");

/// CI adds this argument, which chooses no tests.
pub(crate) const LOCKED: &str = "--locked";

/// Installs missing servers, and runs the tests of a tier. With `arguments`, it runs the tests that
/// `cargo test` chooses by them.
///
/// # Errors
/// A server is missing, a test fails, or no test ran.
pub(crate) fn run(tier: Tier, arguments: &[String]) -> Result<()> {
    let mysql = install_servers(tier == Tier::Thorough || is_chosen(arguments))?;
    mysql.warn();
    if tier == Tier::Thorough {
        book::build()?;
    }
    let report = run_once(tier, arguments)?;
    // This repeats the warning, because the first warning has scrolled away.
    mysql.warn();
    println!("\n{}", report.tally());
    report.end()
}

/// Builds all test programs, and with them all binaries and examples, with every feature.
///
/// # Errors
/// The build fails.
pub(crate) fn build(arguments: &[String]) -> Result<()> {
    programs::build(arguments).map(drop)
}

fn run_once(tier: Tier, arguments: &[String]) -> Result<Report> {
    let mut report = Report::default();
    if is_chosen(arguments) {
        let mut command = cargo(&CHOSEN);
        command.envs(stalls(tier));
        report.cargo(command.args(arguments))?;
    } else {
        run_programs(tier, arguments, &mut report)?;
    }
    Ok(report)
}

fn is_chosen(arguments: &[String]) -> bool {
    arguments.iter().any(|argument| argument != LOCKED)
}

/// Installs the needs of the everyday tier, or of all tests. Only a run of all tests fetches MySQL
/// and Valkey, which Debian's releases do not have. The everyday tier tests them if they are
/// installed.
fn install_servers(all: bool) -> Result<mysql::Availability> {
    if !all {
        install::servers(server::EVERYDAY)?;
        return Ok(mysql::look());
    }
    install::servers(server::ALL)?;
    valkey::offer();
    mysql::offer_to_tests()
}

/// Runs the everyday tests, or the tests of `arguments`, `times` times. Meanwhile the machine is
/// busy and the servers sometimes stall. The next run starts even if one fails.
///
/// # Errors
/// A server is missing, or a test failed in any of the runs. The last output belongs to the first
/// failed run.
pub(crate) fn stress(times: u32, arguments: &[String]) -> Result<()> {
    ensure!(times > 0, "--stress 0 would prove nothing; give a larger number of runs");
    install_servers(is_chosen(arguments))?.warn();
    if !is_chosen(arguments) {
        // This comes before the load begins, because a slow compiler proves nothing.
        build(arguments)?;
    }
    let load = load::Load::begin(&target())?;
    let mut summary = String::new();
    let mut failed = Vec::new();
    for time in 1..=times {
        println!("\n==> under stress, {time} of {times}");
        let start = Instant::now();
        let report = run_once(Tier::Stressed, arguments)?;
        writeln!(
            summary,
            "{time} of {times}: {}, {} s",
            report.tally(),
            start.elapsed().as_secs()
        )?;
        failed.extend(report.end().err());
    }
    drop(load);
    println!("\n==> under stress\n{summary}");
    match failed.first() {
        None => Ok(()),
        Some(first) => bail!("{} of {times} runs failed; the first one: {first}", failed.len()),
    }
}

fn run_programs(tier: Tier, arguments: &[String], report: &mut Report) -> Result<()> {
    let start = Instant::now();
    let mut programs = programs::build(arguments)?;
    tier::select(tier, &mut programs);
    println!("\n==> built in {} s: {} test programs", start.elapsed().as_secs(), programs.len());
    let mut settings = vec![(NO_BACKTRACE.0, NO_BACKTRACE.1.to_owned()), (TEST_THREADS, threads())];
    settings.extend(stalls(tier));
    let of_tier: &[_] = match tier {
        Tier::Thorough => &[MORE_SEEDS],
        Tier::Everyday | Tier::Stressed => &[(ONE_LOCK, "1"), FEWER_DROPPED],
    };
    // A user's own choice has precedence.
    let is_free = |(name, _): &&(&str, &str)| env::var_os(name).is_none();
    settings
        .extend(of_tier.iter().filter(is_free).map(|(name, value)| (*name, (*value).to_owned())));
    let (alone, others): (Vec<_>, Vec<_>) = programs.into_iter().partition(tier::runs_alone);
    let logs = target().join("test-logs");
    let fewer = if tier == Tier::Thorough { FEWER_PROGRAMS } else { 0 };
    let lanes = PROGRAMS_FOR_EACH_CORE * cores() - fewer;
    for (programs, lanes) in [(others, lanes), (alone, 1)] {
        for outcome in pool::run(programs, lanes, &logs, &settings)? {
            report.add(outcome);
        }
    }
    let mut rest = vec![cargo(&EXAMPLES_OF_DOCUMENTATION)];
    if tier == Tier::Thorough {
        rest.extend([cargo(&WITHOUT_STORES), models()]);
    }
    for mut command in rest {
        report.cargo(command.args(arguments))?;
    }
    println!("\n==> {} s in all", start.elapsed().as_secs());
    Ok(())
}

/// Under stress, makes the servers stall sometimes.
fn stalls(tier: Tier) -> Option<(&'static str, String)> {
    (tier == Tier::Stressed).then(|| (lockkit_fixture::STALLS_VARIABLE, "1".to_owned()))
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn threads() -> String {
    env::var(TEST_THREADS).unwrap_or_else(|_| cores().max(LEAST_AT_ONCE).to_string())
}

/// The models have separate build results, because all their dependencies need another flag.
fn models() -> Command {
    let mut command = cargo(&MODELS);
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    command.arg("--target-dir").arg(target().join("loom"));
    // This variable would have precedence over RUSTFLAGS.
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env("RUSTFLAGS", format!("{flags} --cfg lockkit_loom").trim_start());
    command.env("LOOM_MAX_PREEMPTIONS", MOST_PREEMPTIONS);
    command
}
