//! Runs several test programs at once, and prints a line when each has ended.

use std::{
    collections::VecDeque,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{failures::Failures, programs::Program, tally::Tally};

/// A program that takes longer hangs: all tests together take less.
const LONGEST: Duration = Duration::from_secs(60 * 60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The result of one program.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) failures: Failures,
    /// The commands that run each failed test again.
    pub(super) again: Vec<String>,
    pub(super) is_success: bool,
}

/// Runs the programs in their order, at most `lanes` at once. The output of each goes to a file in
/// `logs`.
///
/// # Errors
/// A program can't be started, or its output can't be stored.
pub(super) fn run(
    programs: Vec<Program>,
    lanes: usize,
    logs: &Path,
    settings: &[(&str, String)],
) -> Result<Vec<Outcome>> {
    fs::create_dir_all(logs).with_context(|| logs.display().to_string())?;
    let count = programs.len();
    let queue = Mutex::new(VecDeque::from(programs));
    let (done, outcomes) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..lanes {
            let done = done.clone();
            let queue = &queue;
            scope.spawn(move || {
                while let Some(program) = next(queue) {
                    let start = Instant::now();
                    let outcome = run_one(&program, logs, settings);
                    if done.send((program, start.elapsed(), outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let mut all = Vec::new();
        for (program, took, outcome) in outcomes {
            let outcome = outcome?;
            println!("{}", line(&program, took, &outcome, all.len() + 1, count));
            all.push(outcome);
        }
        Ok(all)
    })
}

fn next(queue: &Mutex<VecDeque<Program>>) -> Option<Program> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

fn line(
    program: &Program,
    took: Duration,
    outcome: &Outcome,
    place: usize,
    count: usize,
) -> String {
    let verdict = if outcome.is_success { "ok    " } else { "FAILED" };
    let Tally { passed, failed, skipped } = outcome.tally;
    let counts = format!("{passed} passed, {failed} failed, {skipped} skipped");
    format!(
        "[{place:>2}/{count}] {verdict} {:>6.1} s  {:<36} {counts}",
        took.as_secs_f64(),
        program.title()
    )
}

fn run_one(program: &Program, logs: &Path, settings: &[(&str, String)]) -> Result<Outcome> {
    let log = log_of(program, logs);
    let output = File::create(&log).with_context(|| log.display().to_string())?;
    let mut command = Command::new(&program.file);
    // Each option is one word, because its value may begin with a dash.
    command.args(program.skips.iter().map(|part| format!("--skip={part}")));
    command.current_dir(&program.folder).envs(settings.iter().map(|(name, value)| (*name, value)));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let mut running = command.spawn().with_context(|| program.file.display().to_string())?;
    let status = end_of(&mut running, LONGEST)?;
    let said = fs::read(&log)?;
    let said = String::from_utf8_lossy(&said);
    let mut outcome = read(&said);
    // A program that a test ended has no closing line, whatever its status is.
    let is_closed = said.lines().any(|line| line.starts_with("test result: ok."));
    outcome.is_success = status.is_some_and(|status| status.success()) && is_closed;
    if outcome.is_success {
        return Ok(outcome);
    }
    // The line of a test can't be read if the test printed something meanwhile. The list can.
    let list = said.rsplit_once("\nfailures:\n").map_or("", |(_, list)| list);
    let failed = list.lines().map_while(|line| line.strip_prefix("    "));
    outcome.again = failed.map(|test| program.command(test)).collect();
    if outcome.again.is_empty() {
        let end = status.map_or("did not end".to_owned(), |status| format!("ended with {status}"));
        outcome.again.push(format!("{} {end}: {}", program.title(), log.display()));
    }
    Ok(outcome)
}

/// Waits for the end of a program. Returns `None` if it hangs. Then this ends it, and the servers
/// that it started end with it.
fn end_of(program: &mut Child, longest: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = program.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > longest {
            program.kill()?;
            program.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_AGAIN);
    }
}

fn log_of(program: &Program, logs: &Path) -> PathBuf {
    logs.join(program.title().replace(' ', "-")).with_extension("log")
}

fn read(said: &str) -> Outcome {
    let mut outcome = Outcome {
        tally: Tally::default(),
        failures: Failures::default(),
        again: Vec::new(),
        is_success: false,
    };
    for line in said.lines() {
        outcome.tally.read(line);
        outcome.failures.read(line);
    }
    outcome.failures.end_of_output();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::programs::Kind;

    fn program(folder: &Path, name: &str, script: &str) -> Program {
        let file = folder.join(name);
        // A shell writes the file. Otherwise a process that another test starts could still have the
        // file open, and the system runs no file that is open for writing (ETXTBSY).
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod +x \"$1\"";
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", write, "sh"]).arg(&file).arg(script).status().unwrap();
        assert!(written.success());
        Program {
            package: "p".to_owned(),
            name: name.to_owned(),
            kind: Kind::Test,
            file,
            folder: folder.to_owned(),
            skips: &[],
        }
    }

    #[test]
    fn each_program_is_run_once_and_read() {
        let folder = tempfile::tempdir().unwrap();
        let good = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored'";
        // The test printed something between its name and its result.
        let bad = "echo 'test a::b ... noise'; echo FAILED; echo; echo failures:; echo; \
                   echo '---- a::b ----'; echo why; echo; echo failures:; echo '    a::b'; echo; \
                   echo 'test result: FAILED. 1 passed; 1 failed'; exit 101";
        let unlisted = "echo 'test result: FAILED. 0 passed; 1 failed'; exit 101";
        let programs = [
            ("good", good),
            ("bad", bad),
            ("killed", "kill -9 $$"),
            ("unlisted", unlisted),
            ("vanished", "exit 0"),
        ];
        let programs = programs.map(|(name, script)| program(folder.path(), name, script));
        let outcomes = run(programs.into(), 2, &folder.path().join("logs"), &[]).unwrap();
        let passed: u64 = outcomes.iter().map(|outcome| outcome.tally.passed).sum();
        assert_eq!((outcomes.len(), passed), (5, 3));
        let mut again: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.again).collect();
        again.sort_unstable();
        assert_eq!(again.len(), 4);
        assert_eq!(again[0], "cargo xtask test -- -p p --test bad -- --exact 'a::b'");
        assert!(again[1].starts_with("p killed ended with signal: 9"), "{}", again[1]);
        assert!(again[2].starts_with("p unlisted ended with exit status: 101"), "{}", again[2]);
        assert!(again[3].starts_with("p vanished ended with exit status: 0"), "{}", again[3]);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_success).count(), 1);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let mut program = Command::new("sleep").arg("3600").spawn().unwrap();
        assert_eq!(end_of(&mut program, Duration::from_millis(100)).unwrap(), None);
        assert!(program.try_wait().unwrap().is_some());
    }

    #[test]
    fn settings_and_the_folder_reach_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let one = program(folder.path(), "one", "echo \"$A\" > here");
        run(vec![one], 1, folder.path(), &[("A", "b".to_owned())]).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("here")).unwrap(), "b\n");
    }
}
