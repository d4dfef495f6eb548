//! A Java process that measures Curator's locks.

use std::{
    fs,
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use lockkit_fixture::{curator_classpath, java_compiler, java_runtime};
use tempfile::TempDir;

const PROGRAM: &str = include_str!("CuratorPairs.java");

/// The Java process. It ends with its standard input, so it ends with this process.
pub(crate) struct Curator {
    _child: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _classes: TempDir,
}

impl Curator {
    /// Compiles and starts the program. The reason for a failure is an advice.
    pub(crate) fn start(servers: &str, session_timeout: Duration) -> Result<Self, String> {
        let jars = curator_classpath()?;
        let classes = compiled(&jars)?;
        let mut child = Command::new(java_runtime()?)
            .args(["-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp"])
            .arg(format!("{}:{jars}", classes.path().display()))
            .args(["CuratorPairs", servers, &session_timeout.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("could not start Java: {error}"))?;
        let commands = child.stdin.take().ok_or("Java has no standard input")?;
        let output = child.stdout.take().ok_or("Java has no standard output")?;
        let answers = BufReader::new(output).lines();
        let mut curator = Self { _child: child, commands, answers, _classes: classes };
        curator.answer();
        Ok(curator)
    }

    /// Pairs per second of so many threads.
    pub(crate) fn pairs(&mut self, threads: usize, slice: Duration, names: &str) -> f64 {
        let answer = self.ask(&format!("pairs {threads} {} {names}", slice.as_millis()));
        let (pairs, nanos) = answer.split_once(' ').unwrap();
        pairs.parse::<f64>().unwrap() / nanos.parse::<f64>().unwrap() * 1e9
    }

    /// In how many seconds a lock that is freed serves so many waiters.
    pub(crate) fn crowd(&mut self, waiters: usize) -> f64 {
        self.ask(&format!("crowd {waiters}")).parse::<f64>().unwrap() / 1e9
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> String {
        self.answers.next().expect("Java has ended").unwrap()
    }
}

fn compiled(jars: &str) -> Result<TempDir, String> {
    let classes = tempfile::tempdir().unwrap();
    fs::write(classes.path().join("CuratorPairs.java"), PROGRAM).unwrap();
    let compiled = Command::new(java_compiler()?)
        .args(["-Xlint:all", "-Werror", "-Xlint:-classfile,-path", "-cp", jars])
        .arg("CuratorPairs.java")
        .current_dir(classes.path())
        .output()
        .map_err(|error| format!("could not start the Java compiler: {error}"))?;
    if compiled.status.success() {
        return Ok(classes);
    }
    Err(String::from_utf8_lossy(&compiled.stderr).into_owned())
}
