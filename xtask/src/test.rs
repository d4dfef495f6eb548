//! The test command: servers first, then every test there is.

use std::{
    io::{BufRead, BufReader, Write, stdout},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{
    failures::Failures,
    install, mysql,
    run::{cargo, shown, target},
    server,
    tally::Tally,
    valkey,
};

/// Unit, integration and doc tests of every crate, with every feature. A failing program doesn't hide the next.
const ALL: [&str; 4] = ["test", "--workspace", "--all-features", "--no-fail-fast"];
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

/// Says to test programs how many tests to run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// What CI adds; it chooses no tests.
pub(crate) const LOCKED: &str = "--locked";

/// Installs what is missing, and runs the tests; `arguments` go to `cargo test`.
///
/// # Errors
/// A server is missing, a test fails, or none ran.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    install::servers(server::ALL)?;
    let mysql = mysql::offer_to_tests()?;
    mysql.warn();
    valkey::offer();
    let mut tally = Tally::default();
    let mut failures = Failures::default();
    let mut failed = Vec::new();
    let mut commands = vec![cargo(&WITHOUT_STORES), cargo(&ALL)];
    for command in &mut commands {
        command.args(arguments);
    }
    // Who asks for certain tests does not mean these.
    let chooses_none = arguments.iter().all(|argument| argument == LOCKED);
    if chooses_none {
        let mut models = models();
        models.args(arguments);
        commands.push(models);
    }
    for mut command in commands {
        println!("\n==> {}", shown(&command));
        let before = tally.ran();
        command.env(NO_BACKTRACE.0, NO_BACKTRACE.1);
        if std::env::var_os(TEST_THREADS).is_none() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            command.env(TEST_THREADS, cores.max(LEAST_AT_ONCE).to_string());
        }
        let success = count(&mut command, &mut stdout().lock(), &mut tally, &mut failures)?;
        // Without the flag that makes them, there would be no model.
        if !success || (chooses_none && tally.ran() == before) {
            failed.push(shown(&command));
        }
    }
    println!("\n{tally}");
    // Once more: what was said before the tests has long scrolled away.
    mysql.warn();
    if !failed.is_empty() {
        println!("\n==> what failed\n{failures}");
        bail!("{} failed", failed.join(" and "));
    }
    if tally.ran() == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// With build results of their own: of everything that they are made of, another one is built.
fn models() -> Command {
    let mut command = cargo(&MODELS);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
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
