//! A store, lockkit processes on it, and bounded waits.

use std::{
    env,
    ffi::OsStr,
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use lockkit::{Locker, Mutex};
use lockkit_fixture::RedisServer;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

/// An event that takes longer is treated as one that never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Timeouts for a Redis that may stall for seconds. lockkit ignores an `op_timeout` that does not
/// fit a shorter lease.
pub(crate) const PATIENT: &str = "?connect_timeout=30s&op_timeout=10s";

/// Starts the tests again without ignored signals. lockkit would inherit signals that the caller of
/// the tests ignores, as nohup does.
pub(crate) fn hear_all_signals() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
    let is_ignored = |signal: Signal| ignored & (1 << (signal.as_raw() - 1)) != 0;
    if [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].into_iter().any(is_ignored) {
        let mut again = Command::new("env");
        again.arg("--default-signal").arg(env::current_exe().unwrap()).args(env::args_os().skip(1));
        panic!("the tests can't begin anew: {}", again.exec());
    }
}

/// A Redis for one test, and a folder for its files.
pub(crate) struct Place {
    pub(crate) redis: RedisServer,
    pub(crate) folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { redis: RedisServer::start().unwrap(), folder: TempDir::new().unwrap() }
    }

    /// A place whose server never stalls unless the test stops it. Some requests of lockkit have
    /// less than a second.
    pub(crate) fn steady() -> Self {
        let mut place = Self::new();
        place.redis.never_stall();
        place
    }

    /// The URL of the store. Its timeouts are long enough for a server that a stall delays.
    pub(crate) fn url(&self) -> String {
        format!("{}{PATIENT}", self.redis.url())
    }

    /// `lockkit`, with the store's URL in its environment.
    pub(crate) fn lockkit<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = bare(arguments);
        command.env("LOCKKIT_URL", self.url());
        command
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The text of a file, once it has a whole line.
    pub(crate) fn text(&self, name: &str) -> String {
        let path = self.path(name);
        until(name, || fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')))
    }

    /// The library on the same store.
    pub(crate) async fn locker(&self) -> Locker {
        lockkit::connect(&self.url()).await.unwrap()
    }
}

/// Waits until the store has a waiter for the mutex.
pub(crate) async fn is_awaited(mutex: &Mutex) {
    let look = async {
        while mutex.inspect().await.unwrap().waiters != Some(1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.expect("nobody waits");
}

/// `lockkit` without a store.
pub(crate) fn bare<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkit"));
    command.args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in ["LOCKKIT_URL", "LOCKKIT_URL_FILE", "LOCKKIT_NAMESPACE"] {
        command.env_remove(variable);
    }
    command
}

/// Ends the process that it started, even if a test fails. The job of a killed lockkit dies with
/// it.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for the end of the process.
    pub(crate) fn end(&mut self) -> ExitStatus {
        until("the end of lockkit", || self.0.try_wait().unwrap())
    }

    /// Waits for the end, and returns the output too, which must be small enough for a pipe.
    pub(crate) fn output(mut self) -> Output {
        use std::io::Read as _;
        let status = self.end();
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        self.0.stdout.take().map(|mut pipe| pipe.read_to_end(&mut stdout).unwrap());
        self.0.stderr.take().map(|mut pipe| pipe.read_to_end(&mut stderr).unwrap());
        Output { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the command to its end.
pub(crate) fn run(command: Command) -> Output {
    Running::start(command).output()
}

/// The next line of its standard error. That line is then not in its output.
pub(crate) fn line_of(run: &mut Running) -> String {
    use std::io::Read as _;
    let mut line = Vec::new();
    let mut byte = [0];
    // This reads no byte beyond the line.
    while !line.ends_with(b"\n") && run.0.stderr.as_mut().unwrap().read(&mut byte).unwrap() == 1 {
        line.extend(byte);
    }
    String::from_utf8(line).unwrap()
}

/// The standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    lockkit_fixture::until(PATIENCE, what, ask)
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
