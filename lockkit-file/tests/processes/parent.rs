//! A folder, a client in this process, and client processes.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::Failed;
use lockkit_core::{Kind, LockName, Locker, Mutex, spi::Inspection};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::child::{NAME, ROLE, connect, gate_of};

/// What must happen, happens within this.
pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Store {
    folder: TempDir,
    pub(crate) runtime: Runtime,
}

impl Store {
    pub(crate) fn new() -> Result<Self, Failed> {
        Ok(Self { folder: TempDir::new()?, runtime: Runtime::new()? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn locker(&self) -> Result<Locker, Failed> {
        connect(self.path())
    }

    pub(crate) fn mutex(&self) -> Result<Mutex, Failed> {
        Ok(self.locker()?.mutex(NAME)?)
    }

    pub(crate) fn inspect(&self) -> Result<Inspection, Failed> {
        let name = LockName::new(Kind::Mutex, NAME)?;
        Ok(self.runtime.block_on(self.locker()?.inspect(&name))?)
    }

    pub(crate) fn wait_for_waiters(&self, waiters: u64) -> Result<(), Failed> {
        eventually("the queue has not its length", || Ok(self.inspect()?.waiters == Some(waiters)))
    }

    pub(crate) fn sessions(&self) -> Result<Vec<PathBuf>, Failed> {
        let sessions = self.path().join("sessions").read_dir()?.map(|entry| entry.map(|entry| entry.path()));
        Ok(sessions.collect::<Result<_, _>>()?)
    }

    pub(crate) fn client(&self, role: &str) -> Result<Client, Failed> {
        let mut process = Command::new(env::current_exe()?)
            .env(ROLE, format!("{} {role}", self.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = process.stdin.take().ok_or("no stdin")?;
        let output = BufReader::new(process.stdout.take().ok_or("no stdout")?).lines();
        let (said, lines) = mpsc::channel();
        // Ends with the client's output, or when nobody listens any more.
        thread::spawn(move || output.map_while(Result::ok).try_for_each(|line| said.send(line)));
        Ok(Client { process, stdin, lines })
    }
}

pub(crate) fn eventually(what: &str, is_so: impl Fn() -> Result<bool, Failed>) -> Result<(), Failed> {
    let start = Instant::now();
    while !is_so()? {
        if start.elapsed() > SOON {
            return Err(what.into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A client process; killed when dropped.
pub(crate) struct Client {
    process: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    pub(crate) fn hear(&self) -> Result<String, Failed> {
        let line = self.lines.recv_timeout(SOON);
        Ok(line.map_err(|error| format!("the client process says nothing: {error}"))?)
    }

    pub(crate) fn go_on(&mut self) -> Result<(), Failed> {
        Ok(writeln!(self.stdin)?)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Failed> {
        Ok(kill(Pid::from_raw(self.process.id().try_into()?), signal)?)
    }

    /// Stops it outside of the gate of its lock: from inside it would keep out everybody.
    pub(crate) fn stop(&self, store: &Store) -> Result<(), Failed> {
        let gate = gate_of(store.path())?;
        let stat = format!("/proc/{}/stat", self.pid());
        eventually("it is always inside the gate", || {
            self.signal(Signal::SIGSTOP)?;
            eventually("it does not stop", || Ok(fs::read_to_string(&stat)?.contains(") T ")))?;
            if gate.try_lock().is_ok() {
                gate.unlock()?;
                return Ok(true);
            }
            self.signal(Signal::SIGCONT)?;
            Ok(false)
        })
    }

    /// What it had said before that nobody has heard.
    pub(crate) fn kill(mut self) -> Result<Option<String>, Failed> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(self.lines.recv_timeout(SOON).ok())
    }

    /// It has shut down in good order.
    pub(crate) fn assert_ends(mut self) -> Result<(), Failed> {
        assert_eq!(self.hear()?, "bye");
        assert!(self.process.wait()?.success());
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
