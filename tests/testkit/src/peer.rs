//! Starts a test program again, as one more client of a store.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Write as _},
    process::{self, Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::process::pause;

/// The variable with the role of a peer.
const ROLE: &str = "LOCKKIT_TEST_ROLE";
/// A process that writes nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// This test program in another process. Parent and child exchange lines. The child is killed when
/// this value is dropped.
#[derive(Debug)]
pub struct Peer {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Peer {
    /// Starts this program again in this [role](role): a URL and other words, separated by spaces.
    ///
    /// # Errors
    /// The system can't start the process.
    pub fn start(role: &str) -> Result<Self> {
        let mut process = Command::new(env::current_exe()?)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("this program can't be started again")?;
        let input = process.stdin.take().context("it has no input")?;
        let output = BufReader::new(process.stdout.take().context("it has no output")?);
        let (said, lines) = mpsc::channel();
        // Ends with the output, or when the receiver is dropped.
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        Ok(Self { process, input, lines })
    }

    /// The next line that the peer writes.
    ///
    /// # Errors
    /// The peer has ended, or writes nothing for a minute.
    pub fn hear(&self) -> Result<String> {
        self.lines.recv_timeout(PATIENCE).context("the other process says nothing")
    }

    /// Sends a line, which may be empty, to the peer, which then continues.
    ///
    /// # Errors
    /// The peer has ended.
    pub fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}").context("the other process hears nothing")
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal to the peer. After SIGSTOP it returns when the peer no longer runs.
    ///
    /// # Errors
    /// The peer has ended, or does not stop.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_raw(self.process.id().try_into()?);
        if signal == Signal::SIGSTOP {
            return pause(id);
        }
        kill(id, signal).with_context(|| format!("{signal} can't be sent to {id}"))
    }

    /// Kills the peer (SIGKILL), and returns its lines that were not heard.
    ///
    /// # Errors
    /// The system does not kill the peer.
    pub fn kill(mut self) -> Result<Vec<String>> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(self.lines.iter().collect())
    }

    /// Waits until the peer has ended by itself. The next line that the peer writes must be "bye".
    ///
    /// # Errors
    /// The peer writes another line, or fails.
    pub fn ends(mut self) -> Result<()> {
        let last = self.hear()?;
        ensure!(last == "bye", "the other process says {last}");
        let status = self.process.wait()?;
        ensure!(status.success(), "the other process failed: {status}");
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The peer may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The words of the role that this process was started in. `None` if it is the test itself.
#[must_use]
pub fn role() -> Option<Vec<String>> {
    let role = env::var(ROLE).ok()?;
    Some(role.split(' ').map(str::to_owned).collect())
}

/// Blocks until the next line from the parent; `None` if the parent has ended.
#[must_use]
pub fn next_line() -> Option<String> {
    io::stdin().lines().next()?.ok()
}

/// Ends this process with its parent, in whatever way the parent ends. For a role that reads no
/// lines.
pub fn end_with_parent() {
    thread::spawn(|| {
        while next_line().is_some() {}
        process::exit(1);
    });
}
