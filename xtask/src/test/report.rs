//! Collects the results of all tests of a run.

use std::{
    io::{BufRead, BufReader, Write, stdout},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use super::{NO_BACKTRACE, TEST_THREADS, failures::Failures, pool::Outcome, tally::Tally, threads};
use crate::run::shown;

/// The results so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    tally: Tally,
    failures: Vec<Failures>,
    /// The commands that run each failure again.
    again: Vec<String>,
}

impl Report {
    pub(super) fn add(&mut self, outcome: Outcome) {
        self.tally += outcome.tally;
        self.again.extend(outcome.again);
        if !outcome.is_success {
            self.failures.push(outcome.failures);
        }
    }

    /// Runs a command of cargo, and forwards its output.
    pub(super) fn cargo(&mut self, command: &mut Command) -> Result<()> {
        println!("\n==> {}", shown(command));
        command.env(NO_BACKTRACE.0, NO_BACKTRACE.1).env(TEST_THREADS, threads());
        let mut failures = Failures::default();
        let before = self.tally.ran();
        let success = count(command, &mut stdout().lock(), &mut self.tally, &mut failures)?;
        // Without the flag that enables the models, no test would run, and that is a failure.
        if !success || self.tally.ran() == before {
            self.again.push(shown(command));
            self.failures.push(failures);
        }
        Ok(())
    }

    /// The numbers of passed, failed and skipped tests.
    pub(super) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Prints the failures.
    ///
    /// # Errors
    /// There are failures; the error lists the commands that run each again.
    pub(super) fn end(self) -> Result<()> {
        if self.again.is_empty() {
            return Ok(());
        }
        println!("\n==> failures");
        for failures in &self.failures {
            println!("{failures}");
        }
        bail!("{} failed; again:\n  {}", self.again.len(), self.again.join("\n  "))
    }
}

/// Forwards the output at once, counts its tests, and keeps the output of failed tests.
fn count(
    command: &mut Command,
    out: &mut impl Write,
    tally: &mut Tally,
    failures: &mut Failures,
) -> Result<bool> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("could not start cargo test")?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("could not read the output of cargo test")?;
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

    /// The forwarded output, whether the command succeeded, and the counts.
    fn counted(script: &str) -> (String, bool, Tally) {
        let mut out = Vec::new();
        let mut tally = Tally::default();
        let success = count(
            Command::new("sh").args(["-c", script]),
            &mut out,
            &mut tally,
            &mut Failures::default(),
        )
        .unwrap();
        (String::from_utf8_lossy(&out).into_owned(), success, tally)
    }

    #[test]
    fn output_is_passed_on_and_counted_and_the_exit_code_kept() {
        let closing = "test result: ok. 2 passed; 0 failed; 0 ignored\n";
        let two = Tally { passed: 2, failed: 0, skipped: 0 };
        assert_eq!(counted(&format!("printf '{closing}'")), (closing.to_owned(), true, two));
        assert_eq!(
            counted(&format!("printf '{closing}'; exit 101")),
            (closing.to_owned(), false, two)
        );
    }

    #[test]
    fn output_that_is_no_text_is_passed_on_too() {
        let (out, success, tally) = counted("printf 'not \\377 text'");
        assert_eq!((out.as_str(), success, tally), ("not \u{fffd} text\n", true, Tally::default()));
    }
}
