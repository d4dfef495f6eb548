//! Starts child processes. Each runs this program again, and receives its orders through a pipe. No
//! child outlives a run.

use std::{
    ffi::OsString,
    path::PathBuf,
    process::Stdio,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{ChildStdin, ChildStdout, Command},
    sync::oneshot,
    task::JoinSet,
    time::timeout,
};

use crate::{
    error::{Error, Result},
    worker::{Answer, Job, Order},
};

/// A child releases its locks when its input ends. The parent kills the child if this takes longer.
const GRACE: Duration = Duration::from_secs(25);

/// How to start a process that calls [`worker`](crate::worker).
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl WorkerCommand {
    /// This program, with these arguments.
    ///
    /// # Errors
    /// The system does not know where this program is.
    pub fn this_program<A: Into<OsString>>(arguments: impl IntoIterator<Item = A>) -> Result<Self> {
        let program = std::env::current_exe();
        let program =
            program.map_err(|error| Error::of("could not find the path of this program", error))?;
        Ok(Self { program, arguments: arguments.into_iter().map(Into::into).collect() })
    }

    /// The words that a user types for a run: this program's name, or another program's name with
    /// its subcommand.
    pub(crate) fn called(&self) -> String {
        let command = self.arguments.split_last().map(|(_, command)| command).unwrap_or_default();
        if command.is_empty() {
            return "lockkit-bench".to_owned();
        }
        let program = self.program.file_name().unwrap_or_default();
        let words = [program].into_iter().chain(command.iter().map(OsString::as_os_str));
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }
}

/// All children of a run.
#[derive(Debug)]
pub(crate) struct Children {
    command: WorkerCommand,
    reapers: Mutex<JoinSet<()>>,
}

/// One child. Dropping this closes the child's input, and gives the child time to end.
#[derive(Debug)]
pub(crate) struct Child {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// A value on this channel kills the child. Dropping the sender lets the child end.
    kill: oneshot::Sender<()>,
    ended: oneshot::Receiver<Instant>,
}

impl Children {
    pub(crate) fn new(command: WorkerCommand) -> Self {
        Self { command, reapers: Mutex::default() }
    }

    /// Starts a child and sends it its job.
    pub(crate) async fn start(&self, job: Job) -> Result<Child> {
        let mut command = Command::new(&self.command.program);
        command.args(&self.command.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C in a terminal must reach only the parent, which lets its children end in order.
        command.process_group(0).kill_on_drop(true);
        let mut process =
            command.spawn().map_err(|error| Error::of("could not start a child process", error))?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::new("a child process has no pipes"));
        };
        let (kill, killed) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let reaper = async move {
            let mut at = None;
            tokio::select! {
                _ = process.wait() => {}
                kill = killed => {
                    if kill.is_ok() || timeout(GRACE, process.wait()).await.is_err() {
                        at = Some(Instant::now());
                        let _ = process.kill().await;
                    }
                }
            }
            let _ = end.send(at.unwrap_or_else(Instant::now));
        };
        self.look_after(reaper);
        let mut child = Child { input, output: BufReader::new(output).lines(), kill, ended };
        child.tell(&job).await?;
        Ok(child)
    }

    fn look_after(&self, reaper: impl Future<Output = ()> + Send + 'static) {
        let mut reapers = self.reapers.lock().unwrap_or_else(PoisonError::into_inner);
        while reapers.try_join_next().is_some() {}
        reapers.spawn(reaper);
    }

    /// Waits until all children have ended. A child whose [`Child`] still lives gets no request to
    /// end.
    pub(crate) async fn all_ended(&self) {
        let reapers =
            std::mem::take(&mut *self.reapers.lock().unwrap_or_else(PoisonError::into_inner));
        reapers.join_all().await;
    }
}

impl Child {
    /// Waits until the child is ready.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        match self.answer().await? {
            Answer::Ready => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    pub(crate) async fn order(&mut self, order: &Order) -> Result<()> {
        self.tell(order).await
    }

    /// The next answer of the child.
    pub(crate) async fn answer(&mut self) -> Result<Answer> {
        let line = self.output.next_line().await;
        let line = line.map_err(|error| Error::of("could not read from a child process", error))?;
        let line =
            line.ok_or_else(|| Error::new("a child process ended before its work was done"))?;
        match serde_json::from_str(&line) {
            Ok(Answer::Failed { reason }) => Err(Error::new(reason)),
            Ok(answer) => Ok(answer),
            Err(error) => Err(Error::of("could not parse the answer of a child process", error)),
        }
    }

    /// Kills the child (SIGKILL), and returns when it ended.
    pub(crate) async fn kill(self) -> Result<Instant> {
        let _ = self.kill.send(());
        self.ended
            .await
            .map_err(|_| Error::new("the task that watches a child process ended early"))
    }

    /// Lets the child end, and waits for its end.
    pub(crate) async fn end(self) -> Result<()> {
        let Self { input, output: _output, kill, ended } = self;
        drop((input, kill));
        ended
            .await
            .map(drop)
            .map_err(|_| Error::new("the task that watches a child process ended early"))
    }

    async fn tell(&mut self, what: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(what)
            .map_err(|error| Error::of("could not encode an order", error))?;
        let written = self.input.write_all(format!("{line}\n").as_bytes()).await;
        written.map_err(|error| Error::of("could not send an order to a child process", error))
    }
}

pub(crate) fn unexpected(answer: &Answer) -> Error {
    Error::new(format!("a child process sent an unexpected answer: {answer:?}"))
}
