//! The test command: servers first, then every test there is.

mod failures;
mod load;
mod pool;
mod programs;
mod tally;

use std::{
    env,
    io::{BufRead, BufReader, Write, stdout},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail};

use self::{failures::Failures, programs::Program, tally::Tally};
use crate::{
    install, mysql,
    run::{cargo, shown, target},
    server, valkey,
};

/// What stands behind `--` is handed to cargo.
const CHOSEN: [&str; 4] = ["test", "--workspace", "--all-features", "--no-fail-fast"];
const EXAMPLES_OF_DOCUMENTATION: [&str; 4] = ["test", "--workspace", "--all-features", "--doc"];
/// What is said when the feature of a store is off.
const WITHOUT_STORES: [&str; 6] =
    ["test", "-p", "lockkit-cli", "--no-default-features", "--test", "without_stores"];

/// The models of what threads agree on without a lock: loom tries every interleaving of them.
const MODELS: [&str; 5] = ["test", "-p", "lockkit-core", "--lib", "loom_"];
/// So many switches of threads where none has to wait; each known way to break a model shows with fewer.
const MOST_PREEMPTIONS: &str = "3";

/// A failure tells what was expected. To resolve the addresses of a backtrace takes a core for longer than many a lease
/// of these tests, and the mutants alone panic by the dozen.
const NO_BACKTRACE: (&str, &str) = ("RUST_BACKTRACE", "0");

/// Tests of stores wait for most of their time: two cores have work for so many of them at once, and for no fewer.
const LEAST_AT_ONCE: usize = 3;

/// Test programs wait for servers and for leases to end.
const PROGRAMS_FOR_EACH_CORE: usize = 2;

/// Says to test programs how many tests to run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// What CI adds; it chooses no tests.
pub(crate) const LOCKED: &str = "--locked";

/// Programs of the thorough tier, by package and name: topologies of several servers, storms, models, and what repeats with
/// other servers what the everyday tier has proved.
const THOROUGH: [(&str, &str); 13] = [
    ("lockkit-conformance", "self_test"),
    ("lockkit-redis", "model"),
    ("lockkit-redis", "topology"),
    ("lockkit-stores", "crowd"),
    ("lockkit-stores", "election_storm"),
    ("lockkit-stores", "examples"),
    ("lockkit-stores", "migration"),
    ("lockkit-stores", "redis_failover"),
    ("lockkit-stores", "redis_upheaval"),
    ("lockkit-torture", "mutants"),
    ("lockkit-zk", "curator"),
    ("lockkit-zk", "ensemble"),
    ("lockkit-zk", "storm"),
];
/// Tests of the thorough tier in programs of everyday, by package, program and parts of their names: topologies, variants
/// of a store, and on MySQL what is proved by the same statements on MariaDB.
const THOROUGH_PARTS: [(&str, &str, &[&str]); 4] = [
    ("lockkit-mysql", "mysql", &["galera::", "mysql::"]),
    ("lockkit-mysql", "pessimistic", &["mysql::"]),
    (
        "lockkit-stores",
        "conformance",
        &[
            "redis-cluster::",
            "redis-sentinel::",
            "-strict::",
            "-unfair::",
            "mysql::one_permit::",
            "mysql::writer::",
        ],
    ),
    (
        "lockkit-stores",
        "torture",
        &[
            "-cluster::",
            "-deposed::",
            "-ensemble::",
            "-sentinel::",
            "-sentinel-wait::",
            "galera::",
            "mysql-clock::",
            "mysql-pessimistic::",
        ],
    ),
];
/// These run alone: they keep all cores at work themselves.
const ALONE: [(&str, &str); 3] =
    [("lockkit-stores", "crowd"), ("lockkit-stores", "election_storm"), ("lockkit-zk", "storm")];
/// The longest, which begin first.
const FIRST: [(&str, &str); 7] = [
    ("lockkit-stores", "conformance"),
    ("lockkit-stores", "torture"),
    ("lockkit-mysql", "mysql"),
    ("lockkit-zk", "zk"),
    ("lockkit-mysql", "pessimistic"),
    ("lockkit-cli", "ops"),
    ("lockkit-cli", "run"),
];

/// Which tests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Everyday,
    /// As everyday, on servers that stall.
    Stressed,
    Thorough,
}

/// Installs what is missing, and runs the tests: those of a tier; or, with `arguments`, what `cargo test` makes of
/// them.
///
/// # Errors
/// A server is missing, a test fails, or none ran.
pub(crate) fn run(tier: Tier, arguments: &[String]) -> Result<()> {
    let is_chosen = arguments.iter().any(|argument| argument != LOCKED);
    let mysql = install_servers(tier == Tier::Thorough || is_chosen)?;
    mysql.warn();
    let mut report = Report::default();
    if is_chosen {
        let mut command = cargo(&CHOSEN);
        command.envs(stalls(tier));
        report.cargo(command.args(arguments))?;
    } else {
        run_programs(tier, arguments, &mut report)?;
    }
    // Once more: what was said before the tests has long scrolled away.
    mysql.warn();
    report.end()
}

/// Installs what the everyday tier needs, or everything. Only the latter fetches a MySQL and a Valkey, of which Debian's
/// releases have no package. The everyday tier tests them where they are already there.
fn install_servers(all: bool) -> Result<mysql::Availability> {
    if !all {
        install::servers(server::EVERYDAY)?;
        return Ok(mysql::look());
    }
    install::servers(server::ALL)?;
    valkey::offer();
    mysql::offer_to_tests()
}

/// The tests of everyday, or those of `arguments`, so many times, while the machine is kept busy and the servers stand still now and then.
///
/// # Errors
/// The first time that a test fails.
pub(crate) fn stress(times: u32, arguments: &[String]) -> Result<()> {
    let _load = load::Load::begin(&target())?;
    for time in 1..=times {
        println!("\n==> under stress, {time} of {times}");
        run(Tier::Stressed, arguments)?;
    }
    Ok(())
}

fn run_programs(tier: Tier, arguments: &[String], report: &mut Report) -> Result<()> {
    let start = Instant::now();
    let mut programs = programs::build(arguments)?;
    let all = tier == Tier::Thorough;
    if !all {
        programs.retain(|program| !is_one_of(&THOROUGH, program));
        for program in &mut programs {
            let parts = THOROUGH_PARTS.iter().find(|part| (part.0, part.1) == program.id());
            program.skips = parts.map_or(&[], |part| part.2);
        }
    }
    println!("\n==> built in {} s: {} test programs", start.elapsed().as_secs(), programs.len());
    let mut settings = vec![(NO_BACKTRACE.0, NO_BACKTRACE.1.to_owned()), (TEST_THREADS, threads())];
    settings.extend(stalls(tier));
    programs.sort_by_key(|program| !is_one_of(&FIRST, program));
    let (alone, others): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| is_one_of(&ALONE, program));
    let logs = target().join("test-logs");
    for (programs, lanes) in [(others, PROGRAMS_FOR_EACH_CORE * cores()), (alone, 1)] {
        for outcome in pool::run(programs, lanes, &logs, &settings)? {
            report.add(outcome);
        }
    }
    let mut rest = vec![cargo(&EXAMPLES_OF_DOCUMENTATION)];
    if all {
        rest.extend([cargo(&WITHOUT_STORES), models()]);
    }
    for mut command in rest {
        report.cargo(command.args(arguments))?;
    }
    println!("\n==> {} s in all", start.elapsed().as_secs());
    Ok(())
}

/// Has the servers stand still now and then, under stress.
fn stalls(tier: Tier) -> Option<(&'static str, String)> {
    (tier == Tier::Stressed).then(|| (lockkit_fixture::STALLS_VARIABLE, "1".to_owned()))
}

fn is_one_of(list: &[(&str, &str)], program: &Program) -> bool {
    list.contains(&program.id())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn threads() -> String {
    env::var(TEST_THREADS).unwrap_or_else(|_| cores().max(LEAST_AT_ONCE).to_string())
}

/// What came of all.
#[derive(Debug, Default)]
struct Report {
    tally: Tally,
    failures: Vec<Failures>,
    /// What runs each failure again.
    again: Vec<String>,
}

impl Report {
    fn add(&mut self, outcome: pool::Outcome) {
        self.tally += outcome.tally;
        self.again.extend(outcome.again);
        if !outcome.is_success {
            self.failures.push(outcome.failures);
        }
    }

    /// Runs a command of cargo, whose output is passed on.
    fn cargo(&mut self, command: &mut Command) -> Result<()> {
        println!("\n==> {}", shown(command));
        command.env(NO_BACKTRACE.0, NO_BACKTRACE.1).env(TEST_THREADS, threads());
        let mut failures = Failures::default();
        let before = self.tally.ran();
        let success = count(command, &mut stdout().lock(), &mut self.tally, &mut failures)?;
        // Without the flag that makes them, there would be no model.
        if !success || self.tally.ran() == before {
            self.again.push(shown(command));
            self.failures.push(failures);
        }
        Ok(())
    }

    fn end(self) -> Result<()> {
        println!("\n{}", self.tally);
        if !self.again.is_empty() {
            println!("\n==> what failed");
            for failures in &self.failures {
                println!("{failures}");
            }
            bail!("{} failed; again:\n  {}", self.again.len(), self.again.join("\n  "));
        }
        Ok(())
    }
}

/// With build results of their own: of everything that they are made of, another one is built.
fn models() -> Command {
    let mut command = cargo(&MODELS);
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    command.arg("--target-dir").arg(target().join("loom"));
    // It would come before the other one.
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env("RUSTFLAGS", format!("{flags} --cfg lockkit_loom").trim_start());
    command.env("LOOM_MAX_PREEMPTIONS", MOST_PREEMPTIONS);
    command
}

/// Passes the output on as it comes, counts the tests in it, and keeps what failed ones said.
fn count(
    command: &mut Command,
    out: &mut impl Write,
    tally: &mut Tally,
    failures: &mut Failures,
) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("can't start cargo test")?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("can't read the output of cargo test")?;
            out.write_all(&line)?;
            out.write_all(b"\n")?;
            let line = String::from_utf8_lossy(&line);
            tally.read(&line);
            failures.read(&line);
        }
    }
    failures.end_of_output();
    Ok(child.wait().context("cargo test")?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output that was passed on, whether the command succeeded, and what was counted.
    fn counted(script: &str) -> (String, bool, Tally) {
        let mut out = Vec::new();
        let mut tally = Tally::default();
        let success =
            count(Command::new("sh").args(["-c", script]), &mut out, &mut tally, &mut Failures::default())
                .unwrap();
        (String::from_utf8_lossy(&out).into_owned(), success, tally)
    }

    #[test]
    fn output_is_passed_on_and_counted_and_the_exit_code_kept() {
        let closing = "test result: ok. 2 passed; 0 failed; 0 ignored\n";
        let two = Tally { passed: 2, failed: 0, skipped: 0 };
        assert_eq!(counted(&format!("printf '{closing}'")), (closing.to_owned(), true, two));
        assert_eq!(counted(&format!("printf '{closing}'; exit 101")), (closing.to_owned(), false, two));
    }

    #[test]
    fn output_that_is_no_text_is_passed_on_too() {
        let (out, success, tally) = counted("printf 'not \\377 text'");
        assert_eq!((out.as_str(), success, tally), ("not \u{fffd} text\n", true, Tally::default()));
    }
}
