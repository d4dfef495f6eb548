//! A child process that can't outlive this one.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Display,
    fs::{self, File},
    hash::{BuildHasher as _, RandomState},
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Runs `"$@"` in the background, prints its process id, and kills it when standard input ends.
///
/// Only this process holds the other end of standard input, so the input also ends when this
/// process is killed. `PR_SET_PDEATHSIG` would not do: it fires when the *thread* that spawned the
/// child ends, and test threads end.
const WATCHDOG: &str = r#"
exec 3<&0
"$@" 3<&- </dev/null >&2 &
server=$!
echo "$server"
exec >/dev/null
{ read -r _ <&3; kill -9 "$server"; } 2>/dev/null &
watchdog=$!
wait "$server"
kill "$watchdog" 2>/dev/null
"#;

const PAUSE_TIMEOUT: Duration = Duration::from_secs(60);

/// If this variable is set, each server is stopped now and then, for 0.1 to 2 s. That simulates a
/// machine that is busy with something else.
pub const STALLS_VARIABLE: &str = "LOCKKIT_TEST_STALLS";

/// The state of the server, which decides whether it may be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Paused by a test, which decides for how long.
    Paused,
    Ended,
}

/// A server process with a watchdog. The server is killed when this value is dropped, and when this
/// process dies in any way.
#[derive(Debug)]
pub struct ServerProcess {
    shell: Child,
    watchdog: Option<ChildStdin>,
    server: Pid,
    state: Arc<Mutex<State>>,
    log: PathBuf,
    /// Where the log of this process begins.
    log_start: u64,
}

impl ServerProcess {
    /// Starts `program`, with its output appended to `log`.
    ///
    /// # Errors
    /// When the shell that holds the watchdog can't be started.
    pub fn spawn(
        program: &Path,
        args: impl IntoIterator<Item: AsRef<OsStr>>,
        log: &Path,
    ) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let log_start = output.metadata()?.len();
        // The server inherits the log as standard error; its standard output joins it there.
        let mut shell = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(output)
            .spawn()
            .context("sh can't be started")?;
        let watchdog = shell.stdin.take();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().context("sh has no output")?).read_line(&mut line)?;
        let server = Pid::from_raw(line.trim().parse().context("sh printed no process id")?);
        let state = Arc::new(Mutex::new(State::Running));
        if env::var_os(STALLS_VARIABLE).is_some() {
            let state = Arc::downgrade(&state);
            let parent = shell.id();
            thread::spawn(move || stall_now_and_then(server, parent, &state));
        }
        Ok(Self { shell, watchdog, server, state, log: log.to_owned(), log_start })
    }

    /// As [`spawn`](Self::spawn), and waits until the server answers.
    pub(crate) fn start(
        (program, args): (&Path, &[OsString]),
        log: &Path,
        timeout: Duration,
        answers: impl Fn() -> bool,
    ) -> Result<Self> {
        let mut server = Self::spawn(program, args, log)?;
        let deadline = Instant::now() + timeout;
        while !answers() {
            if !server.is_running()? {
                bail!("{} ended at its start; its log:\n{}", program.display(), server.log());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} did not answer within {timeout:?}; its log:\n{}",
                    program.display(),
                    server.log()
                );
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// All that the server has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        let mut bytes = Vec::new();
        let mut read = || -> std::io::Result<usize> {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.log_start))?;
            file.read_to_end(&mut bytes)
        };
        // The log is for the text of an error, so unreadable parts are left out.
        let _ = read();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The server's process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.server.as_raw()
    }

    /// True until the server has ended.
    ///
    /// # Errors
    /// When the state of the child can't be read.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.shell.try_wait()?.is_none())
    }

    /// Sends a signal to the server.
    ///
    /// # Errors
    /// When the server has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.server, signal)
            .with_context(|| format!("{signal} can't be sent to {}", self.server))
    }

    /// Stops the server (SIGSTOP), and returns when it no longer runs. Connections stay open, and
    /// requests get no answer.
    ///
    /// # Errors
    /// When the server has ended, or does not stop.
    pub fn pause(&self) -> Result<()> {
        *self.state() = State::Paused;
        pause(self.server)
    }

    /// Continues a paused server.
    ///
    /// # Errors
    /// When the server has ended.
    pub fn resume(&self) -> Result<()> {
        let mut state = self.state();
        self.signal(Signal::SIGCONT)?;
        *state = State::Running;
        Ok(())
    }

    /// From now on only its own test stops the server, even if [`STALLS_VARIABLE`] is set. For work
    /// that must be done in less time than a stall.
    pub fn never_stall(&mut self) {
        // Waits until the present stall is over. Without the shared state, no other stall begins.
        let state = *self.state();
        self.state = Arc::new(Mutex::new(state));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the server (SIGKILL), paused or not, and waits until it is gone.
    ///
    /// # Errors
    /// When the child can't be waited for.
    pub fn kill(&mut self) -> Result<()> {
        // From now on its process id may belong to another process.
        *self.state() = State::Ended;
        // The shell does the kill, because it knows whether the process id is still the server's.
        drop(self.watchdog.take());
        self.shell.wait()?;
        Ok(())
    }
}

/// Stops the server now and then, until the server has ended or its owner was dropped.
fn stall_now_and_then(server: Pid, parent: u32, state: &Weak<Mutex<State>>) {
    loop {
        thread::sleep(Duration::from_millis(random(500, 5_000)));
        let Some(state) = state.upgrade() else { return };
        // Locked during the stall: a pause, resume or kill of the server waits for its end.
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Paused => continue,
            State::Ended => return,
            State::Running => {}
        }
        // A server that ended by itself may have left its process id to another process.
        if parent_of(server) != Some(parent) || kill(server, Signal::SIGSTOP).is_err() {
            return;
        }
        thread::sleep(Duration::from_millis(random(100, 2_000)));
        let _ = kill(server, Signal::SIGCONT);
    }
}

fn parent_of(process: Pid) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

fn random(least: u64, most: u64) -> u64 {
    least + RandomState::new().hash_one(0) % (most - least)
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // A test can't react to a process that can't be waited for.
        let _ = self.kill();
    }
}

/// Stops a process (SIGSTOP), and returns when none of its threads runs any more.
///
/// # Errors
/// The process has ended, or does not stop.
pub(crate) fn pause(process: Pid) -> Result<()> {
    kill(process, Signal::SIGSTOP).with_context(|| format!("{process} can't be stopped"))?;
    // The signal is only on its way. On a busy machine a thread may send or answer one more request
    // meanwhile.
    let deadline = Instant::now() + PAUSE_TIMEOUT;
    while !is_stopped(process)? {
        if Instant::now() > deadline {
            bail!("{process} did not stop within {PAUSE_TIMEOUT:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Whether a process lives. A zombie, whose parent has not waited for it yet, does not live.
pub fn is_alive(process: impl Display) -> bool {
    !matches!(state_of(process), None | Some('Z' | 'X'))
}

/// The letter for the state of a process, such as T for stopped. `None` if there is no such
/// process.
pub fn state_of(process: impl Display) -> Option<char> {
    state_in(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The state of a process or a thread, by its line in `/proc`. The name in that line is in
/// parentheses, and may hold any text.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Whether every thread is stopped. True if there is no `/proc`.
fn is_stopped(process: Pid) -> Result<bool> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Ok(true) };
    for thread in threads {
        // A thread that ends meanwhile no longer runs.
        let Ok(stat) = fs::read_to_string(thread?.path().join("stat")) else { continue };
        if !matches!(state_in(&stat), Some('T' | 't' | 'Z' | 'X')) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_server_dies_with_its_watchdog() {
        let dir = tempfile::tempdir().unwrap();
        let server =
            ServerProcess::spawn(Path::new("sleep"), ["1000"], &dir.path().join("log")).unwrap();
        let pid = server.pid();
        server.pause().unwrap();
        assert!(is_alive(pid));
        drop(server);
        assert!(!is_alive(pid));
    }

    #[test]
    fn a_paused_server_does_nothing_more_until_it_is_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let server =
            ServerProcess::spawn(Path::new("sh"), ["-c", "while :; do echo x; done"], &log)
                .unwrap();
        let written = || fs::metadata(&log).unwrap().len();
        for _ in 0..20 {
            server.pause().unwrap();
            let before = written();
            thread::sleep(Duration::from_millis(5));
            assert_eq!(written(), before);
            server.resume().unwrap();
            while written() == before {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn a_server_that_ends_by_itself_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut server =
            ServerProcess::spawn(Path::new("sh"), ["-c", "echo out; echo err >&2"], &log).unwrap();
        while server.is_running().unwrap() {
            thread::yield_now();
        }
        assert_eq!(fs::read_to_string(log).unwrap(), "out\nerr\n");
    }

    #[test]
    fn a_server_stalls_until_it_ends_unless_it_is_paused() {
        let dir = tempfile::tempdir().unwrap();
        let server =
            ServerProcess::spawn(Path::new("sleep"), ["1000"], &dir.path().join("log")).unwrap();
        let pid = server.server;
        let parent = server.shell.id();
        let state = Arc::downgrade(&server.state);
        assert_eq!(parent_of(pid), Some(parent));
        let stalling = thread::spawn(move || stall_now_and_then(pid, parent, &state));
        while !is_stopped(server.server).unwrap() {
            thread::sleep(Duration::from_millis(5));
        }
        // The pause waits until the stall is over, and then no stall continues the server.
        server.pause().unwrap();
        let until = Instant::now() + Duration::from_secs(6);
        while Instant::now() < until {
            assert!(is_stopped(server.server).unwrap());
            thread::sleep(Duration::from_millis(20));
        }
        drop(server);
        stalling.join().unwrap();
    }
}
