//! One child process, from its start to its end.

use std::{
    net::SocketAddr,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{Answer, HUNG, Program, Role};
use crate::error::{Error, Result};

/// The longest time until a child is at work, or reports why it cannot work.
const START: Duration = Duration::from_secs(30);

/// A child process. Dropping this value kills the child.
#[derive(Debug)]
pub struct Child {
    number: u32,
    address: Option<SocketAddr>,
    process: tokio::process::Child,
    /// Closing this ends the child.
    input: ChildStdin,
    /// This stays open as long as the child may write to it.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a process, and waits until it is at work.
    ///
    /// A child that cannot reach its store yet is also at work, because it retries for a while.
    ///
    /// Poll this on a runtime that lives as long as the child. If the polling thread dies, a
    /// stopped child continues, as it does when the whole parent process dies.
    ///
    /// # Errors
    /// The process can't start, ends at once, reports why it can't work, or is not at work after
    /// half a minute.
    pub async fn start(program: &Program, role: Role) -> Result<Self> {
        let number = role.number();
        let mut command = Command::new(&program.program);
        command.args(&program.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C in a terminal must reach only the parent, which ends its children in order.
        command.process_group(0).kill_on_drop(true);
        let failed = |error| Error::of(format!("could not start process {number}"), error);
        let mut process = command.spawn().map_err(failed)?;
        let (Some(mut input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::new(format!("process {number} has no pipes")));
        };
        let mut output = BufReader::new(output).lines();
        let first = timeout(START, async {
            let line = serde_json::to_string(&role)?;
            input.write_all(format!("{line}\n").as_bytes()).await?;
            output.next_line().await
        });
        let line = first
            .await
            .map_err(|_| Error::new(format!("process {number} did not start within {START:?}")))?;
        let line = line.map_err(failed)?;
        let line = line
            .ok_or_else(|| Error::new(format!("process {number} ended before it was at work")))?;
        match serde_json::from_str(&line) {
            Ok(Answer::Ready { address }) => {
                Ok(Self { number, address, process, input, _output: output })
            }
            Ok(Answer::Failed { reason }) => Err(Error::new(format!("process {number}: {reason}"))),
            Err(error) => {
                Err(Error::of(format!("could not parse the answer of process {number}"), error))
            }
        }
    }

    /// The number in its history.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The address of the child, if it is a register.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The system's process id, until the child has ended and this process has noticed it.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// Kills the child (SIGKILL), and returns after it has ended.
    ///
    /// # Errors
    /// The system could not kill the child.
    ///
    /// # Cancel safety
    /// Dropping the call also kills the child.
    pub async fn kill(&mut self) -> Result<()> {
        // Not `Child::kill`, which fails if the child has ended by itself.
        if self.process.id().is_some() {
            self.process.start_kill().map_err(|error| self.failed("kill", error))?;
        }
        self.process.wait().await.map(drop).map_err(|error| self.failed("kill", error))
    }

    /// Stops the child (SIGSTOP).
    ///
    /// # Errors
    /// The child has ended.
    pub fn stop(&self) -> Result<()> {
        self.signal("stop", Signal::SIGSTOP)
    }

    /// Continues the child (SIGCONT).
    ///
    /// # Errors
    /// The child has ended.
    pub fn go_on(&self) -> Result<()> {
        self.signal("continue", Signal::SIGCONT)
    }

    /// Asks the child to end, and waits for its end. Returns true if the child ended by itself in
    /// time. Returns false if this call or an earlier call killed the child.
    ///
    /// # Errors
    /// The child ended by itself because it could not work, and wrote the reason to standard error.
    /// For example, the store refused the password.
    ///
    /// # Cancel safety
    /// Dropping the call kills the child.
    pub async fn end(self, within: Duration) -> Result<bool> {
        let Self { number, mut process, input, _output, .. } = self;
        drop(input);
        let failed = |error| Error::of(format!("could not wait for process {number}"), error);
        if let Ok(ended) = timeout(within, process.wait()).await {
            return by_itself(number, ended.map_err(failed)?);
        }
        process.kill().await.map(|()| false).map_err(failed)
    }

    /// Whether the child has ended, for any reason.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn signal(&self, what: &str, signal: Signal) -> Result<()> {
        let id = self.process.id().and_then(|id| i32::try_from(id).ok());
        let id = id.ok_or_else(|| self.failed(what, "it has ended"))?;
        kill(Pid::from_raw(id), signal).map_err(|error| self.failed(what, error))
    }

    fn failed(
        &self,
        what: &str,
        error: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::of(format!("could not {what} process {}", self.number), error)
    }
}

fn by_itself(number: u32, status: ExitStatus) -> Result<bool> {
    match status.code() {
        Some(0) => Ok(true),
        // Killed by a signal.
        None | Some(HUNG) => Ok(false),
        Some(_) => Err(Error::new(format!(
            "process {number} failed; its standard error has the reason ({status})"
        ))),
    }
}
